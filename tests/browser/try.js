// What a reader does to a chart of time, done to every one on the page; says "tried" when
// all went as it should.
"use strict";
(() => {
let failed = false;
function expect(condition, what) {
  if (condition) return;
  failed = true;
  console.error(`try.js: ${what}`);
}

function pointer(svg, type, x, y) {
  svg.dispatchEvent(new PointerEvent(type, {clientX: x, clientY: y, button: 0, pointerId: 1, bubbles: true}));
}

function attempt(box) {
  const svg = box.querySelector("svg"), output = box.querySelector("output");
  const button = name => [...box.querySelectorAll("button")].find(b => b.textContent === name);
  const drawing = () => [".spans", ".times"].map(name => svg.querySelector(name).innerHTML).join();
  const whole = drawing();
  svg.setPointerCapture = () => {};
  expect(whole.length > 0, "nothing is drawn");
  expect(button("All").disabled, "all is shown, yet it can be asked for");

  // The middle of the first span that is drawn.
  const at = svg.querySelector(".spans path").getAttribute("d").match(/^M([\d.]+) ([\d.]+)h([\d.]+)v([\d.]+)/);
  const place = new DOMPoint(+at[1] + at[3] / 2, +at[2] + at[4] / 2).matrixTransform(svg.getScreenCTM());
  pointer(svg, "pointermove", place.x, place.y);
  expect(/·.* to .*·/.test(output.textContent), `pointing at a slot says "${output.textContent}"`);
  expect(svg.querySelectorAll(".found").length > 0, "the slot is not marked");
  pointer(svg, "pointerleave", 0, 0);
  expect(svg.querySelectorAll(".found").length === 0, "the mark stays");

  button("+").click();
  button("+").click();
  expect(drawing() !== whole, "looking closer changes nothing");
  expect(!button("All").disabled && !button("▶").disabled, "there is no way back");
  const closer = drawing();
  button("▶").click();
  expect(drawing() !== closer, "going on changes nothing");
  svg.dispatchEvent(new KeyboardEvent("keydown", {key: "0", bubbles: true}));
  expect(drawing() === whole, "all is another drawing than before");

  const edge = svg.getBoundingClientRect();
  pointer(svg, "pointerdown", edge.left + edge.width * .3, edge.top + 40);
  pointer(svg, "pointermove", edge.left + edge.width * .4, edge.top + 40);
  expect(svg.querySelector(".brush"), "dragging marks no part");
  pointer(svg, "pointerup", edge.left + edge.width * .4, edge.top + 40);
  expect(drawing() !== whole && !svg.querySelector(".brush"), "dragging looks no closer");
  if (!location.hash) svg.dispatchEvent(new MouseEvent("dblclick"));
}

// Points of curves say what they are, and all lie on the drawing.
function attempt_point(point) {
  const box = point.ownerSVGElement.viewBox.baseVal;
  expect(point.querySelector("title").textContent.includes(" to "), "a point has no title");
  expect(point.cx.baseVal.value <= box.width && point.cy.baseVal.value <= box.height, "a point lies outside");
}

const charts = document.querySelectorAll(".gantt"), points = document.querySelectorAll("svg circle");
const jobs = [...document.querySelectorAll("svg rect title")].filter(title => title.textContent.includes(": waiting to start"));
expect(charts.length + points.length + jobs.length > 0, "the page has no chart of time, of sizes or of jobs");
charts.forEach(attempt);
points.forEach(attempt_point);
document.querySelectorAll("svg").forEach(svg =>
  expect(svg.getAttribute("role") === "img" && svg.querySelector("title").textContent, "a drawing has no title"));
expect(performance.getEntriesByType("resource").length === 0, "the page asks for more than itself");
expect(document.documentElement.scrollWidth <= innerWidth, "the page is wider than its window");
expect(document.querySelector("meta[http-equiv='Content-Security-Policy']"), "the page has no policy");
if (!failed) document.body.dataset.tried = "yes";
})();
