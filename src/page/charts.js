// Charts: axes, lines, bars and intervals, redrawn for the available width.

const kChartHeight = 240;

// Draws into the svg of `holder`, whose figure gives the width. `describe` is the text for those who do not see it.
function chart(holder, describe, draw, height = kChartHeight, margins = {}) {
  const svg = holder.localName === "svg" ? holder : $("svg", holder);
  const add = (name, attributes, text) => {
    const element = document.createElementNS(svg.namespaceURI, name);
    for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
    if (text !== undefined && name !== "text") {  // what a pointer that rests there is told
      const title = document.createElementNS(svg.namespaceURI, "title");
      title.textContent = text;
      element.append(title);
    } else if (text !== undefined) {
      element.textContent = text;
    }
    svg.append(element);
    return element;
  };
  svg.setAttribute("role", "img");
  svg.setAttribute("aria-label", describe);
  const { left = 52, top = 12, right = 10, bottom = 34 } = margins;
  let drawn = 0;
  const redraw = () => {
    const width = Math.floor(svg.parentElement.clientWidth);
    if (width === drawn || width < 50) return;
    drawn = width;
    svg.replaceChildren();
    svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
    svg.setAttribute("height", height);
    draw(add, { left, top, right: width - right, bottom: height - bottom });
  };
  new ResizeObserver(redraw).observe(svg.parentElement);
  redraw();
}

// A figure with a chart of its own, for sections whose number of charts follows from the data.
function figure(title, hint) {
  const svg = document.createElementNS($(".logo").namespaceURI, "svg");
  return make("figure", {}, ...(title ? [make("figcaption", {}, make("strong", {}, title), hint ? ` ${hint}` : "")] : []), svg);
}

// What the looks of a chart mean: [look, words].
function key(section, entries) {
  const list = make("ul", { class: "key", "aria-hidden": "true" }, ...entries.map(([look, says]) => make("li", {}, make("i", { class: look }), says)));
  $("figure", section).prepend(list);
}

// A logarithmic axis from the power of ten below the least to the one above the greatest value.
function logAxis(values, add, box, say) {
  const logs = values.filter((v) => v > 0 && Number.isFinite(v)).map(Math.log10);
  const high = Math.ceil(Math.max(0, ...logs)) || 1;
  const low = Math.max(high - 14, Math.floor(Math.min(high - 1, ...logs)));  // below that is as good as nothing
  const y = (v) => {
    const log = v > 0 ? Math.min(high, Math.max(low, Math.log10(v))) : low;
    return box.bottom - ((log - low) / (high - low)) * (box.bottom - box.top);
  };
  const every = Math.ceil((high - low) / 6);
  for (let power = low; power <= high; power += every) {
    add("line", { class: "tick", x1: box.left, x2: box.right, y1: y(10 ** power), y2: y(10 ** power) });
    add("text", { x: box.left - 6, y: y(10 ** power) + 4, "text-anchor": "end" }, say(power));
  }
  return y;
}

// The least of 1, 2, 5 times a power of ten that cuts `span` into at most `pieces`.
function tickStep(span, pieces) {
  const rough = span / pieces, unit = 10 ** Math.floor(Math.log10(rough));
  return unit * (rough <= unit ? 1 : rough <= 2 * unit ? 2 : rough <= 5 * unit ? 5 : 10);
}

// A linear axis that has room for all values, and shows zero where that costs less than half of the height.
function linearAxis(values, add, box, pieces = 5) {
  const high = Math.max(...values), least = Math.min(...values);
  const low = least > high / 2 ? least : 0;
  const step = tickStep(Math.max(high - low, Math.abs(high) * 0.02, 1e-12), pieces);
  const from = Math.floor(low / step + 1e-9) * step, to = Math.max(from + step, Math.ceil(high / step - 1e-9) * step);
  const y = (v) => box.bottom - ((v - from) / (to - from)) * (box.bottom - box.top);
  const digits = Math.max(0, -Math.floor(Math.log10(step) + 1e-9));
  for (let i = 0; from + i * step <= to + step / 2; ++i) {
    const at = from + i * step;
    add("line", { class: "tick", x1: box.left, x2: box.right, y1: y(at), y2: y(at) });
    add("text", { x: box.left - 6, y: y(at) + 4, "text-anchor": "end" }, digits > 4 ? at.toExponential(0) : at.toFixed(digits));
  }
  return y;
}

// Names below a horizontal axis, as many as there is room for.
function ticks(names, x, add, box, title) {
  const wide = 12 + 7 * Math.max(...names.map((name) => String(name).length));
  const every = Math.ceil(names.length / Math.max(1, Math.floor((box.right - box.left) / Math.max(34, wide))));
  names.forEach((name, index) => {
    if (index % every === 0) add("text", { x: x(index), y: box.bottom + 16, "text-anchor": "middle" }, name);
  });
  add("text", { x: (box.left + box.right) / 2, y: box.bottom + 31, "text-anchor": "middle" }, title);
}

function drawLine(add, points, look, dotsOnly = false) {
  if (points.length === 0) return;
  if (!dotsOnly) add("path", { class: `line ${look}`, d: points.map(([x, y], i) => `${i ? "L" : "M"}${x.toFixed(1)} ${y.toFixed(1)}`).join("") });
  const every = dotsOnly ? 1 : Math.ceil(points.length / 40);
  points.forEach(([x, y, says], i) => i % every === 0 && add("circle", { class: `dot ${look}`, cx: x.toFixed(1), cy: y.toFixed(1), r: 3 }, says));
}

const power = (p) => (Math.abs(p) < 4 ? String(Number((10 ** p).toPrecision(1))) : `1e${p}`);

// A bar of shares of one whole, with its legend: [look, name, value, words].
function shareBar(entries, whole) {
  const shown = entries.filter(([, , value]) => value > 0);
  const bar = make("div", { class: "shares", "aria-hidden": "true" }, ...shown.map(([look, , value]) => {
    const part = make("i", { class: look });
    part.style.width = `${(100 * value) / whole}%`;
    return part;
  }));
  return make("div", {}, bar, make("ul", { class: "key" }, ...shown.map(([look, name, , says]) =>
    make("li", {}, make("i", { class: look }), `${name} `, make("strong", {}, says)))));
}
