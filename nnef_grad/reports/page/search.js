"use strict";
// The search: in the texts of the operations, which have their kinds, tensors and labels, and
// in the names that results have in a file.

const query = document.getElementById("query");
const hits = { found: [], at: -1 };

function search() {
  const words = query.value.toLowerCase().split(/\s+/).filter(Boolean);
  const all = [...forward.operations, ...backward.operations];
  const searched = ({ text, results }) => [text, ...results.map((name) => contents.called[name] || "")].join(" ").toLowerCase();
  setHits(words.length ? all.filter((operation) => words.every((word) => searched(operation).includes(word))) : []);
  document.getElementById("hits").textContent = words.length ? `${hits.found.length} found` : "";
}

function setHits(found) {
  Object.assign(hits, { found, at: -1 });
  markHits();
}

/** Marks what was found, or the fold that hides it. */
function markHits() {
  marks.hit = new Set(hits.found.map(shownKey));
  world.classList.toggle("has-hits", hits.found.length > 0);
  showMarks();
}

function nextHit(step) {
  if (!hits.found.length) return;
  hits.at = (hits.at + step + hits.found.length) % hits.found.length;
  document.getElementById("hits").textContent = `${hits.at + 1} of ${hits.found.length}`;
  goTo(hits.found[hits.at], false);
}

function searchFor(text) {
  query.value = text;
  search();
  showTab("graph");
  nextHit(1);
}

/** Shows operations as if they had been searched for. */
function showFound(operations) {
  query.value = "";
  setHits(operations);
  showTab("graph");
  nextHit(1);
}

query.addEventListener("input", search);
document.getElementById("search").addEventListener("submit", (event) => {
  event.preventDefault();
  nextHit(1);
});
