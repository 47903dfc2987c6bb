// Charts: lines over the depth and bars, redrawn for the available width.

function chart(section, describe, draw) {
  const svg = $("svg", section);
  const add = (name, attributes, text) => {
    const element = document.createElementNS(svg.namespaceURI, name);
    for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
    if (text !== undefined) element.textContent = text;
    svg.append(element);
  };
  svg.setAttribute("aria-label", describe);
  const height = 260;
  let drawn = 0;
  const redraw = () => {
    const width = Math.floor(svg.parentElement.clientWidth);
    if (width === drawn || width < 50) return;
    drawn = width;
    svg.replaceChildren();
    svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
    svg.setAttribute("height", height);
    draw(add, { left: 52, top: 12, right: width - 10, bottom: height - 34 });
  };
  new ResizeObserver(redraw).observe(svg.parentElement);
  redraw();
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

function layerTicks(layers, x, add, box) {
  const every = Math.ceil(layers.length / Math.max(1, Math.floor((box.right - box.left) / 34)));
  layers.forEach((layer, index) => {
    if (index % every === 0) add("text", { x: x(index), y: box.bottom + 16, "text-anchor": "middle" }, layer);
  });
  add("text", { x: (box.left + box.right) / 2, y: box.bottom + 31, "text-anchor": "middle" }, "layer");
}

function drawLine(add, points, look, dotsOnly = false) {
  if (points.length === 0) return;
  if (!dotsOnly) add("path", { class: `line ${look}`, d: points.map(([x, y], i) => `${i ? "L" : "M"}${x.toFixed(1)} ${y.toFixed(1)}`).join("") });
  const every = dotsOnly ? 1 : Math.ceil(points.length / 40);
  points.forEach(([x, y], i) => i % every === 0 && add("circle", { class: `dot ${look}`, cx: x.toFixed(1), cy: y.toFixed(1), r: 2.5 }));
}

const power = (p) => (Math.abs(p) < 4 ? String(Number((10 ** p).toPrecision(1))) : `1e${p}`);

function drawDepth() {
  const stages = data.stages.filter((stage) => stage.layer !== null && stage.computed);
  const section = $("#depth");
  if (stages.length === 0) return void (section.hidden = true);
  const split = stages.some((stage) => ratioIn(stage, "alone") !== undefined);
  const inherited = (s) => (s.inherited === undefined ? undefined : s.inherited === null ? Infinity : s.inherited / s.tolerance);
  const series = split ? [["inherited error", "one", inherited], ["local error: the op alone", "two", (s) => ratioIn(s, "alone")]]
                       : [["error", "one", ratioOf]];
  $(".hint", section).textContent = (split ? "Inherited and local error" : "Error") +
    " of each stage in the order of execution, over what is allowed (the dotted line at 1).";
  $("#terms").hidden = !split;
  const layers = [...new Set(stages.map((stage) => stage.layer))];
  const starts = layers.map((layer) => stages.findIndex((stage) => stage.layer === layer));
  chart(section, "Error over allowance of each stage in the order of execution", (add, box) => {
    const y = logAxis([1, ...series.flatMap(([, , pick]) => stages.map(pick))], add, box, power);
    const x = (index) => box.left + 4 + (index / Math.max(1, stages.length - 1)) * (box.right - box.left - 8);
    add("line", { class: "allowed", x1: box.left, x2: box.right, y1: y(1), y2: y(1) });
    for (const [, look, pick] of series) {
      drawLine(add, stages.map((s, i) => [x(i), pick(s)]).filter(([, v]) => v !== undefined && !(look === "two" && v === 0))
        .map(([px, v]) => [px, y(v)]), look, look === "two");  // a local error has nothing to do with that of its neighbour
    }
    series.forEach(([name, look], i) => add("text", { class: look, x: box.left + 8, y: box.top + 14 + 16 * i }, (i ? "○ " : "― ● ") + name));
    layerTicks(layers, (index) => x(starts[index]), add, box);
  });
}

function drawMagnitudes() {
  const series = [["layer_out", "one"], ["attn_out", "two"], ["ffn_act", "three"]]
    .map(([name, look]) => [name, look, data.stages.filter((s) => s.stage === name && s.layer !== null)])
    .filter(([, , stages]) => stages.length > 0);
  const section = $("#magnitudes");
  if (series.length === 0) return void (section.hidden = true);
  const layers = [...new Set(series.flatMap(([, , stages]) => stages.map((s) => s.layer)))].sort((a, b) => a - b);
  chart(section, "Largest value of each layer in the recording", (add, box) => {
    const y = logAxis(series.flatMap(([, , stages]) => stages.map((s) => s.largest)), add, box, power);
    const x = (index) => box.left + 10 + (index / Math.max(1, layers.length - 1)) * (box.right - box.left - 20);
    for (const [, look, stages] of series) drawLine(add, stages.map((s) => [x(layers.indexOf(s.layer)), y(s.largest)]), look);
    const signs = { one: "― ● ", two: "╌ ○ ", three: "┄ ● " };
    series.forEach(([name, look], i) => add("text", { class: look, x: box.left + 8, y: box.bottom - 8 - 16 * i }, signs[look] + name));
    layerTicks(layers, x, add, box);
  });
}

const eights = (p) => (p < 0 ? `1/${short(8 ** -p)}` : short(8 ** p));
const short = (x) => (x < 1e3 ? String(x) : x < 1e6 ? `${Math.round(x / 1e3)}k` : x < 1e9 ? `${Math.round(x / 1e6)}M` : `${Math.round(x / 1e9)}G`);

function drawHistogram() {
  const shown = data.histogram;
  if (!shown || shown.counts.length === 0) return;
  const section = $("#histogram");
  section.hidden = false;
  const total = shown.counts.reduce((sum, count) => sum + count, 0) + shown.equal;
  const beyond = shown.counts.reduce((sum, count, i) => sum + (shown.from + i >= 0 ? count : 0), 0);
  $(".hint", section).textContent = `${shown.key}: ${total} values, ${beyond} of them beyond what is allowed` +
    (shown.equal > 0 ? `, ${shown.equal} exactly equal.` : ".");
  chart(section, `Histogram of the errors of ${shown.key}: ${beyond} of ${total} values beyond what is allowed`, (add, box) => {
    const most = Math.max(...shown.counts);
    const step = (box.right - box.left) / shown.counts.length;
    const y = (count) => box.bottom - (count / most) * (box.bottom - box.top - 16);
    shown.counts.forEach((count, i) => {
      const left = box.left + i * step, beyondAllowed = shown.from + i >= 0;
      if (count > 0) {
        add("rect", { class: beyondAllowed ? "beyond" : "within", x: left + 1, y: y(count), width: Math.max(1, step - 2), height: box.bottom - y(count) });
        if (step > 8 * String(most).length) add("text", { x: left + step / 2, y: y(count) - 4, "text-anchor": "middle" }, count);
      }
      if (i % Math.ceil(44 / step) === 0) add("text", { x: left, y: box.bottom + 16, "text-anchor": "middle" }, eights(shown.from + i));
    });
    add("line", { class: "axis", x1: box.left, x2: box.right, y1: box.bottom, y2: box.bottom });
    const limit = box.left - shown.from * step;
    if (limit >= box.left && limit <= box.right) add("line", { class: "allowed", x1: limit, x2: limit, y1: box.top, y2: box.bottom });
    add("text", { x: box.left - 6, y: y(most) + 4, "text-anchor": "end" }, most);
    add("text", { x: (box.left + box.right) / 2, y: box.bottom + 31, "text-anchor": "middle" }, "error over what is allowed, by factors of 8");
  });
}
