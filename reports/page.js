// Zoom and hover for the charts of time; without it they stand as they were drawn.
"use strict";
(() => {
const SVG = "http://www.w3.org/2000/svg";

function make(parent, name, attributes, text) {
  const node = document.createElementNS(SVG, name);
  for (const key in attributes) node.setAttribute(key, attributes[key]);
  if (text !== undefined) node.textContent = text;
  parent.append(node);
  return node;
}

function seconds(ns, digits = 4) {
  const units = [["s", 1e9], ["ms", 1e6], ["µs", 1e3], ["ns", 1]];
  const [name, size] = units.find(unit => Math.abs(ns) >= unit[1]) || units[3];
  return `${+(ns / size).toPrecision(digits)} ${name}`;
}

// Spans as the page holds them: gap, length, kind, microbatch, chunk of each in turn.
function unpack(flat, row) {
  const spans = [];
  for (let i = 0, end = 0; i < flat.length; i += 5) {
    const from = end + flat[i];
    end = from + flat[i + 1];
    spans.push({row, from, to: end, kind: flat[i + 2], microbatch: flat[i + 3], chunk: flat[i + 4]});
  }
  return spans;
}

function gantt(box) {
  const svg = box.querySelector("svg");
  const data = JSON.parse(box.querySelector("script").textContent);
  const rows = data.rows.map(unpack);
  const layer = svg.querySelector(".spans"), times = svg.querySelector(".times");
  const waits = svg.querySelectorAll(".wait");
  const bottom = data.top + data.pitch * data.rows.length;
  const width = data.right - data.left;
  const drawn = [layer.innerHTML, times.innerHTML];

  // All windows, one after the other: what zooming moves in. `gap` is that between them.
  const shown = data.windows.reduce((sum, w) => sum + w[1] - w[0], 0);
  const gap = data.gap * shown / (width - data.gap * (data.windows.length - 1));
  let at = 0;
  const parts = data.windows.map(([from, to]) => {
    const part = {from, to, at};
    at += to - from + gap;
    return part;
  });
  const all = at - gap;
  let view = [0, all];
  const x = (part, t) => data.left + (part.at + t - part.from - view[0]) * width / (view[1] - view[0]);
  const clip = `gantt-${[...document.querySelectorAll(".gantt")].indexOf(box)}`;
  make(make(svg, "clipPath", {id: clip}), "rect",
       {x: data.left, y: 0, width, height: bottom + 4});
  layer.setAttribute("clip-path", `url(#${clip})`);

  const tools = document.createElement("div");
  tools.className = "tools";
  const output = document.createElement("output");
  const hint = "Point at a slot to see it; drag over a part, or use + and −, to look closer.";
  tools.append(output);
  box.prepend(tools);
  box.classList.add("live");
  svg.setAttribute("tabindex", "0");

  function say(text) {
    output.textContent = text || hint;
    output.classList.toggle("hint", !text);
  }

  function visible(part, span) {
    return span.to > part.from && span.from < part.to &&
           x(part, Math.min(span.to, part.to)) > data.left &&
           x(part, Math.max(span.from, part.from)) < data.right;
  }

  function edges(part, span) {
    const left = Math.max(x(part, Math.max(span.from, part.from)), data.left - 2);
    return [left, Math.min(x(part, Math.min(span.to, part.to)), data.right + 2) - left];
  }

  function drawSpans() {
    const paths = new Map(), labels = [];
    for (const part of parts)
      for (const row of rows)
        for (const span of row) {
          if (!visible(part, span)) continue;
          const [left, w] = edges(part, span);
          const y = data.top + span.row * data.pitch;
          const key = span.kind * 2 + span.chunk % 2;
          const d = `M${left.toFixed(1)} ${y.toFixed(1)}h${Math.max(w - (w > 3 ? .7 : 0), .2).toFixed(2)}` +
                    `v${data.height}H${left.toFixed(1)}`;
          paths.set(key, (paths.get(key) || "") + d);
          if (span.microbatch >= 0 && data.pitch > 13 && w > 8 + 7 * String(span.microbatch).length)
            labels.push([left + w / 2, y + data.height / 2 + 4, span]);
        }
    layer.replaceChildren();
    for (const [key, d] of [...paths].sort((a, b) => a[0] - b[0])) {
      const path = make(layer, "path", {class: `k${data.kinds[key >> 1][1]}`, d});
      if (key & 1) path.setAttribute("fill-opacity", ".62");
    }
    for (const [cx, cy, span] of labels)
      make(layer, "text", {class: span.chunk % 2 ? "m num off" : `m num in${data.kinds[span.kind][1]}`, x: cx, y: cy},
           span.microbatch);
  }

  function drawTimes() {
    times.replaceChildren();
    parts.forEach((part, index) => {
      const left = Math.max(x(part, part.from), data.left), right = Math.min(x(part, part.to), data.right);
      waits[index].style.display = right > left ? "" : "none";
      waits[index].setAttribute("d", rows.map((_, row) =>
        `M${left} ${data.top + row * data.pitch}H${right}v${data.height}H${left}`).join(""));
      if (right - left < 40) return;
      const from = part.from + Math.max(0, view[0] - part.at);
      const span = (right - left) / width * (view[1] - view[0]);
      const rough = span / Math.max(1, Math.floor((right - left) / 130));
      const ten = 10 ** Math.floor(Math.log10(rough));
      const step = [1, 2, 5, 10].find(n => n * ten >= rough) * ten;
      for (let t = Math.ceil(from / step) * step; t <= from + span; t += step) {
        const cx = x(part, t);
        make(times, "path", {class: "tick", d: `M${cx} ${data.top - 4}V${bottom}`});
        make(times, "text", {class: "m small", x: cx, y: data.top - 8}, t === 0 ? "0" : seconds(t, 5));
      }
      if (index > 0)
        make(times, "text", {class: "m dim", x: left - data.gap / 2, y: (data.top + bottom) / 2}, "…");
    });
  }

  const buttons = {};
  function draw() {
    const whole = view[0] <= 0 && view[1] >= all;
    if (whole) {
      drawTimes();
      [layer.innerHTML, times.innerHTML] = drawn;
      if (width > 22 * Math.max(...rows.map(row => row.length))) drawSpans();
    } else {
      drawSpans();
      drawTimes();
    }
    buttons["−"].disabled = buttons.All.disabled = whole;
    buttons["◀"].disabled = view[0] <= 0;
    buttons["▶"].disabled = view[1] >= all;
  }

  function look(from, to) {
    const length = Math.min(Math.max(to - from, all / 5000), all);
    const start = Math.min(Math.max((from + to - length) / 2, 0), all - length);
    view = [start, start + length];
    mark([]);
    draw();
  }
  function zoom(factor, centre = (view[0] + view[1]) / 2) {
    look(centre - (centre - view[0]) * factor, centre + (view[1] - centre) * factor);
  }
  function pan(share) {
    const step = share * (view[1] - view[0]);
    look(...(step < 0 ? [Math.max(view[0] + step, 0), Math.max(view[0] + step, 0) + view[1] - view[0]]
                      : [Math.min(view[1] + step, all) - view[1] + view[0], Math.min(view[1] + step, all)]));
  }
  const actions = [
    ["−", "Look from further away", () => zoom(2)], ["+", "Look closer", () => zoom(.5)],
    ["◀", "Earlier", () => pan(-.5)], ["▶", "Later", () => pan(.5)],
    ["All", "Show everything", () => look(0, all)],
  ];
  for (const [name, title, action] of actions) {
    const button = buttons[name] = document.createElement("button");
    button.type = "button";
    button.textContent = name;
    button.title = title;
    button.setAttribute("aria-label", title);
    button.addEventListener("click", action);
    tools.append(button);
  }

  // Where the pointer is: a place in the drawing, a time, a span.
  function place(event) {
    const point = new DOMPoint(event.clientX, event.clientY).matrixTransform(svg.getScreenCTM().inverse());
    const u = view[0] + (point.x - data.left) * (view[1] - view[0]) / width;
    return {x: point.x, y: point.y, u, row: Math.floor((point.y - data.top) / data.pitch)};
  }
  function find({u, row}) {
    const part = parts.find(p => u >= p.at && u <= p.at + p.to - p.from);
    if (!part || !rows[row]) return null;
    const t = part.from + u - part.at;
    return rows[row].find(span => span.from <= t && t <= span.to) || null;
  }

  let marks = [];
  function mark(spans) {
    marks.forEach(node => node.remove());
    marks = [];
    for (const span of spans)
      for (const part of parts)
        if (visible(part, span)) {
          const [left, w] = edges(part, span);
          marks.push(make(svg, "rect", {class: "found", x: left, y: data.top + span.row * data.pitch,
                                        width: Math.max(w, 1.5), height: data.height,
                                        "clip-path": `url(#${clip})`}));
        }
  }
  function describe(span) {
    let text = `${data.names[span.row]} · ${data.kinds[span.kind][0]}`;
    if (span.microbatch >= 0) text += ` of microbatch ${span.microbatch}`;
    if (data.chunks > 1) text += `, chunk ${span.chunk}`;
    return `${text} · ${seconds(span.from, 6)} to ${seconds(span.to, 6)} · ${seconds(span.to - span.from)}`;
  }
  function hover(span) {
    say(span && describe(span));
    mark(!span ? [] : span.microbatch < 0 ? [span] :
         rows.flat().filter(other => other.microbatch === span.microbatch));
  }

  let start = null, brush = null;
  svg.addEventListener("pointerdown", event => {
    if (event.button !== 0 || event.pointerType === "touch") return;
    start = place(event);
    svg.setPointerCapture(event.pointerId);
  });
  svg.addEventListener("pointermove", event => {
    const here = place(event);
    if (!start) return hover(find(here));
    brush ||= make(svg, "rect", {class: "brush", y: data.top, height: bottom - data.top});
    const left = Math.max(Math.min(start.x, here.x), data.left);
    brush.setAttribute("x", left);
    brush.setAttribute("width", Math.max(0, Math.min(Math.max(start.x, here.x), data.right) - left));
  });
  svg.addEventListener("pointerup", event => {
    const here = place(event);
    if (start && Math.abs(here.x - start.x) > 6)
      look(Math.max(0, Math.min(start.u, here.u)), Math.min(all, Math.max(start.u, here.u)));
    brush?.remove();
    start = brush = null;
  });
  svg.addEventListener("pointerleave", () => { if (!start) hover(null); });
  svg.addEventListener("dblclick", () => look(0, all));
  svg.addEventListener("wheel", event => {
    if (!event.ctrlKey && !event.metaKey) return;
    event.preventDefault();
    zoom(event.deltaY > 0 ? 1.25 : .8, place(event).u);
  }, {passive: false});
  svg.addEventListener("keydown", event => {
    const action = {"+": () => zoom(.5), "=": () => zoom(.5), "-": () => zoom(2), "0": () => look(0, all),
                    ArrowLeft: () => pan(-.25), ArrowRight: () => pan(.25)}[event.key];
    if (!action || event.ctrlKey || event.metaKey) return;
    event.preventDefault();
    action();
  });
  addEventListener("beforeprint", () => look(0, all));
  say();
  draw();
}

document.querySelectorAll(".gantt").forEach(gantt);
let closed = [];
addEventListener("beforeprint", () => {
  closed = [...document.querySelectorAll("details:not([open])")];
  closed.forEach(node => { node.open = true; });
});
addEventListener("afterprint", () => closed.forEach(node => { node.open = false; }));
})();
