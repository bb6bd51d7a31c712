"use strict";
// The drawing as a file of its own: all that is unfolded, in the colours that it has now. Each
// element has its looks in itself, for programs that read no style sheets.

// What elements of a drawing have besides their looks, and which looks need not be said.
const PLACED = ["x", "y", "width", "height", "rx", "cx", "cy", "r", "d", "text-anchor"];
const COLOURS = ["fill", "stroke"];
const USUAL = { "stroke-width": "1px", "stroke-dasharray": "none", "stroke-linejoin": "miter", "paint-order": "normal", opacity: "1", "font-size": null, "font-weight": "400" };
// What is in no file of XML, whatever a label has in it.
const UNFIT = /[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\u{10000}-\u{10ffff}]/gu;

function saveDrawing() {
  const text = new XMLSerializer().serializeToString(picture()).replace(UNFIT, "\ufffd");
  const address = URL.createObjectURL(new Blob([text], { type: "image/svg+xml" }));
  html("a", { href: address, download: `${contents.title}.svg` }).click();
  setTimeout(() => URL.revokeObjectURL(address));
  announce(`${contents.title}.svg saved`);
}

function picture() {
  const known = new Map();
  showWhole();
  const { x, y, width, height } = canvas.viewBox.baseVal;
  const page = getComputedStyle(document.documentElement);
  const headings = [...document.querySelectorAll("#headings span")].map((heading) => {
    const looks = { fill: coloured(getComputedStyle(heading).color), "font-size": 14, "font-weight": 650, "text-anchor": "middle" };
    return svg("text", { x: heading.dataset.x, y: -14, ...looks }, heading.textContent);
  });
  const above = HEADINGS - MARGIN / 2;
  const box = { x, y: y - above, width, height: height + above };
  const found = svg(
    "svg",
    { viewBox: Object.values(box).join(" "), width: box.width, height: box.height, "font-family": page.fontFamily, role: "img" },
    svg("title", {}, `${contents.title} and its gradient`),
    svg("rect", { ...box, fill: coloured(page.backgroundColor) }),
    ...headings,
    ...[...world.children].map((element) => copied(element, "", known))
  );
  showPart();
  return found;
}

/** An element with what is in it, without what only the page needs. Elements that the style
 * sheet does not tell apart have one look. */
function copied(element, around, known) {
  const states = [":hover", ":focus-visible", ":has(> .heading)"].filter((state) => element.matches(state));
  const path = [around, element.id, element.tagName, element.getAttribute("class"), ...states].join(" ");
  if (!known.has(path)) known.set(path, looksOf(element));
  const placed = PLACED.map((name) => [name, element.getAttribute(name)]);
  const isText = element.tagName === "text";
  const inside = isText ? [element.textContent] : [...element.children].map((child) => copied(child, path, known));
  return svg(element.tagName, Object.fromEntries([...placed, ...known.get(path)]), ...inside);
}

function looksOf(element) {
  const looks = getComputedStyle(element);
  const isGroup = element.tagName === "g";
  const names = Object.keys(USUAL).filter((name) => element.tagName === "text" || !name.startsWith("font"));
  const said = names.map((name) => [name, looks.getPropertyValue(name)]).filter(([name, value]) => value !== USUAL[name]);
  return [...(isGroup ? [] : COLOURS.map((name) => [name, coloured(looks[name])])), ...said];
}

/** A colour as every program reads it. */
function coloured(value) {
  const [red, green, blue, opacity = 1] = (value.match(/-?[\d.]+(e-?\d+)?/g) || []).map(Number);
  if (value === "none" || opacity === 0) return "none";
  const part = value.startsWith("color(") ? 255 : 1;
  return `#${[red, green, blue].map((number) => Math.round(number * part).toString(16).padStart(2, "0")).join("")}`;
}
