// The comparison's charts: errors and magnitudes over the depth, and how the errors are spread.

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
  const layers = layersOf(stages);
  const starts = layers.map((layer) => stages.findIndex((stage) => stage.layer === layer));
  const worst = (pick) => stages.reduce((most, s) => ((pick(s) ?? 0) > (pick(most) ?? 0) ? s : most), stages[0]);
  const says = series.map(([name, , pick]) => `${name} at most ${times(pick(worst(pick)) ?? 0)} of what is allowed, in ${place(worst(pick))}`);
  key(section, series.map(([name, look]) => [`mark ${look}`, name]));
  chart(section, `Error over allowance of each stage in the order of execution: ${says.join("; ")}`, (add, box) => {
    const y = logAxis([1, ...series.flatMap(([, , pick]) => stages.map(pick))], add, box, power);
    const x = (index) => box.left + 4 + (index / Math.max(1, stages.length - 1)) * (box.right - box.left - 8);
    add("line", { class: "allowed", x1: box.left, x2: box.right, y1: y(1), y2: y(1) });
    for (const [, look, pick] of series) {
      drawLine(add, stages.map((s, i) => [x(i), pick(s), s]).filter(([, v]) => v !== undefined && !(look === "two" && v === 0))
        .map(([px, v, s]) => [px, y(v), `${s.key}: ${times(v)}`]), look, look === "two");  // a local error has nothing to do with that of its neighbour
    }
    ticks(layers, (index) => x(starts[index]), add, box, "layer");
  });
}

function drawMagnitudes() {
  const series = [["layer_out", "one"], ["attn_out", "two"], ["ffn_act", "three"]]
    .map(([name, look]) => [name, look, data.stages.filter((s) => s.stage === name && s.layer !== null)])
    .filter(([, , stages]) => stages.length > 0);
  const section = $("#magnitudes");
  if (series.length === 0) return void (section.hidden = true);
  const layers = layersOf(series.flatMap(([, , stages]) => stages));
  const says = series.map(([name, , stages]) => `${name} at most ${number(Math.max(...stages.map((s) => s.largest)))}`);
  key(section, series.map(([name, look]) => [`mark ${look}`, name]));
  chart(section, `Largest value of each layer in the recording: ${says.join(", ")}`, (add, box) => {
    const y = logAxis(series.flatMap(([, , stages]) => stages.map((s) => s.largest)), add, box, power);
    const x = (index) => box.left + 10 + (index / Math.max(1, layers.length - 1)) * (box.right - box.left - 20);
    for (const [, look, stages] of series) {
      drawLine(add, stages.map((s) => [x(layers.indexOf(s.layer)), y(s.largest), `${s.key}: ${number(s.largest)}`]), look);
    }
    ticks(layers, x, add, box, "layer");
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
