// A field before each table shows the rows that contain every word typed into it.
"use strict";
for (const part of document.querySelectorAll(".filtered")) {
  const field = part.querySelector("input");
  const rows = [...part.querySelectorAll("tbody tr")].map((row) => [row, row.textContent.toLowerCase()]);
  field.hidden = false;
  field.addEventListener("input", () => {
    const words = field.value.toLowerCase().split(/\s+/);
    for (const [row, text] of rows) row.hidden = !words.every((word) => text.includes(word));
  });
}
