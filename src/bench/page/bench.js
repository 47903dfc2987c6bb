// The measurement's page: tiles, the baseline, runs and tokens over time, limits and parts.

const series = seriesOf();

function tile(label, big, unit, hint, change) {
  $(".tiles").append(make("div", { class: "tile" }, make("p", { class: "label" }, label),
    make("p", { class: "big" }, big, make("span", {}, ` ${unit}`)), ...(hint ? [make("p", { class: "hint" }, hint)] : []),
    ...(change ? [make("p", { class: `change ${change[0]}` }, change[1])] : [])));
}

function tiles() {
  for (const { name, figure, summary: s, unit, scale, say } of series) {
    const spread = s.count > 1 ? `${say(s.low * scale)} to ${say(s.high * scale)}, ${counted(s.count, "run")}` : "one run";
    tile(name, say(s.median * scale), unit, spread, changeOf(figure));
  }
  for (const line of data.decode ?? []) {
    const kind = timeOf(line.token_seconds.p99), say = (x) => kind.say(x * kind.scale);
    tile(`99 of 100 tokens, ${decodeName(line).toLowerCase()}`, say(line.token_seconds.p99), kind.unit, `half within ${say(line.token_seconds.p50)} ${kind.unit}`,
      changeOf(`${decodeFigure(line)}, p99 s`));
  }
  if (data.suite === "kernels") {
    const kind = timeOf(data.seconds);
    tile("All kernels of a token", kind.say(data.seconds * kind.scale), kind.unit, `${counted(data.kernels.length, "kind")} of kernel`, changeOf("all kernels, s"));
    tile("The device reads its memory", (data.read_bandwidth / 1e9).toPrecision(3), "GB/s", "the limit for what only reads");
  }
  if (data.suite === "perplexity") {
    tile("Perplexity", number(data.perplexity), "", `the exponential of the loss`);
    tile("Loss", data.loss.toFixed(4), "nats a token", `give or take ${data.standard_error.toFixed(4)}`);
    tile("Predicted", data.tokens, "tokens", `in ${counted(data.chunks, "chunk")} of at most ${data.context}`);
  }
  if (data.memory) {
    const [size, unit] = bytes(data.memory.peak_bytes).split(" ");
    tile("Peak memory", size, unit, `the files have ${bytes(data.memory.file_bytes)}`, changeOf("peak memory, bytes"));
  }
  if (data.quality?.ok !== undefined && data.quality.ok !== null) {
    tile("Loss on plain English", Number.isFinite(data.quality.loss) ? data.quality.loss.toFixed(3) : "NaN", "nats a token", `knowing nothing is ${data.quality.chance.toFixed(3)}`);
  }
}

// A row for each figure: its interval of "times as good", with 1 in the middle of things.
function baseline() {
  if (!data.comparison) return;
  const section = $("#baseline"), { figures, differences, failures } = data.comparison;
  section.hidden = false;
  $(".hint", section).textContent = "How many times as good as before, with the interval of the ratio; right of the line is better, whatever the unit." +
    (data.comparison.fail_over === null ? "" : ` A loss of more than ${percent(data.comparison.fail_over, 1).replace(".0%", "%")} that is certain fails.`);
  const from = Math.min(0.9, ...figures.map((f) => f.low)), to = Math.max(1.1, ...figures.map((f) => f.high)), row = 36;
  chart(section, `Times as good as the baseline: ${figures.map((f) => `${f.name} ${number(f.times_as_good)}`).join(", ")}`, (add, box) => {
    const x = (v) => box.left + (Math.log(v / from) / Math.log(to / from)) * (box.right - box.left);
    const free = [1];  // ratios that have their name below the axis; the likeliest to be looked for come first
    for (const v of [0.5, 2, 0.9, 1.1, 0.2, 5, 10, 0.1, 0.8, 1.5, 20, 50, 100, 0.95, 1.05, 0.02, 0.05]) {
      if (v > from && v < to && free.every((other) => Math.abs(x(v) - x(other)) > 44)) free.push(v);
    }
    for (const v of free) {
      add("line", { class: "tick", x1: x(v), x2: x(v), y1: box.top, y2: box.bottom });
      add("text", { x: x(v), y: box.bottom + 16, "text-anchor": "middle" }, `×${v}`);
    }
    add("line", { class: "median", x1: x(1), x2: x(1), y1: box.top, y2: box.bottom });
    figures.forEach((f, i) => {
      const [look, says] = describeChange(f), y = box.top + i * row + 26, tip = `${f.name}: ${says}`;
      add("text", { x: 0, y: y - 10 }, f.name);
      add("line", { class: `whisker ${look}`, x1: x(f.low), x2: x(f.high), y1: y, y2: y }, tip);
      add("circle", { class: `point ${look}`, cx: x(f.times_as_good), cy: y, r: 5 }, tip);
    });
  }, row * figures.length + 40, { left: 18, right: 18, bottom: 26 });
  rowsOf($("table", section), [["figure"], ["change"], ["before", true], ["now", true], ["times as good", true]],
    figures.map((f) => { const [look, says] = describeChange(f); return [look, f.name, says, number(f.baseline), number(f.now), f.times_as_good.toFixed(3)]; }));
  $("ul", section).append(...failures.map((says) => make("li", { class: "worse" }, says)), ...differences.map((says) => make("li", {}, says)));
}

function drawRuns(svg, { name, summary: s, unit, scale, say }) {
  const runs = s.runs.map((run) => run * scale);
  const [low, median, high] = [s.low, s.median, s.high].map((v) => v * scale);
  chart(svg, `${name}: ${runs.length} runs from ${say(Math.min(...runs))} to ${say(Math.max(...runs))} ${unit}, median ${say(median)}`, (add, box) => {
    const y = linearAxis([...runs, low, high], add, box);
    const x = (i) => box.left + 14 + (runs.length > 1 ? i / (runs.length - 1) : 0.5) * (box.right - box.left - 28);
    add("rect", { class: "band", x: box.left, width: box.right - box.left, y: y(high), height: Math.max(1, y(low) - y(high)) });
    add("line", { class: "median", x1: box.left, x2: box.right, y1: y(median), y2: y(median) });
    drawLine(add, runs.map((run, i) => [x(i), y(run), `run ${i + 1}: ${say(run)} ${unit}`]), "one");
    ticks(runs.map((_, i) => i + 1), x, add, box, "run");
  }, 180, { left: 56 });
}

function runs() {
  const shown = series.filter((one) => one.summary.runs?.length > 1);
  const bandwidth = data.read_bandwidth?.runs;
  if (shown.length === 0) return;
  $("#runs").hidden = false;
  if (bandwidth?.length > 1) shown.push({ name: "The memory's bandwidth", summary: data.read_bandwidth, unit: "GB/s", scale: 1e-9, say: kRate.say });
  $("#runs .hint").after(make("ul", { class: "key", "aria-hidden": "true" }, make("li", {}, make("i", { class: "mark median" }), "median"),
    make("li", {}, make("i", { class: "interval" }), "95% interval of the median")));
  for (const one of shown) {
    const box = figure(one.name, one.unit);
    $("#runs .figures").append(box);
    drawRuns($("svg", box), one);
  }
}

function tokens() {
  for (const line of data.decode ?? []) {
    const times = line.token_seconds.each;
    if (!(times?.length > 1)) continue;
    $("#tokens").hidden = false;
    const { unit, scale, say } = timeOf(line.token_seconds.p99), { p50, p99 } = line.token_seconds;
    const box = figure(decodeName(line), `${unit} a token; half within ${say(p50 * scale)}, 99 of 100 within ${say(p99 * scale)}`);
    $("#tokens .figures").append(box);
    const each = times.map((t) => t * scale), size = line.tokens / line.sequences / each.length;
    const text = `${decodeName(line)}: half of the tokens within ${say(p50 * scale)} ${unit}, 99 of 100 within ${say(p99 * scale)}, the slowest ${say(Math.max(...each))}`;
    chart($("svg", box), text, (add, area) => {
      const y = linearAxis([0, ...each], add, area);
      const x = (i) => area.left + 4 + (i / (each.length - 1)) * (area.right - area.left - 8);
      each.forEach((t, i) => add("circle", { class: "dot one", cx: x(i).toFixed(1), cy: y(t).toFixed(1), r: 2 }));
      for (const value of [p50, p99]) add("line", { class: "median", x1: area.left, x2: area.right, y1: y(value * scale), y2: y(value * scale) });
      const step = tickStep(each.length * size, 4);
      for (let token = 0; token < each.length * size; token += step) add("text", { x: x(token / size), y: area.bottom + 16, "text-anchor": "middle" }, Math.round(token));
      add("text", { x: (area.left + area.right) / 2, y: area.bottom + 31, "text-anchor": "middle" }, "token");
    }, 190, { left: 56 });
  }
}

// Rows of a name, a bar for a share, and figures.
function barRows(table, heads, rows) {
  table.replaceChildren(make("thead", {}, make("tr", {}, ...heads.map((head, i) => make("th", { scope: "col", class: i > 1 ? "number" : null }, head)))),
    make("tbody", {}, ...rows.map(([name, share, ...figures]) => {
      const bar = make("i");
      bar.style.width = percent(Math.min(1, share), 1);
      return make("tr", {}, make("td", {}, name), make("td", { class: "bar" }, make("span", { class: "meter", "aria-hidden": "true" }, bar)),
        ...figures.map((text) => make("td", { class: "number" }, text)));
    })));
}

function limit() {
  if (!data.decode?.length) return;
  $("#limit").hidden = false;
  $("#limit .hint").textContent = `A step that generates must read weights and cache once, so memory's bandwidth is the limit: ${(data.read_bandwidth.median / 1e9).toPrecision(3)} GB/s here, ` +
    `as ${data.device ? "the device" : "a plain loop"} reads it. A full bar is that limit.` +
    (data.decode.some((line) => line.share_of_limit > 1) ? " What is beyond it found the weights in a cache, which is faster than the memory." : "");
  barRows($("#limit table"), ["", "", "of the limit", "reads"], data.decode.map((line) =>
    [decodeName(line), line.share_of_limit, percent(line.share_of_limit), `${(line.bandwidth / 1e9).toPrecision(3)} GB/s`]));
}

function memory() {
  const m = data.memory;
  if (!m) return;
  $("#memory").hidden = false;
  const held = m.weight_bytes + m.cache_bytes + m.activation_bytes;
  $("#memory .hint").textContent = data.device ? `The backend holds ${bytes(held)}; the process had ${bytes(m.peak_bytes)} at most.`
    : `The process had ${bytes(m.peak_bytes)} at most, ${(m.peak_bytes / Math.max(1, m.file_bytes)).toPrecision(3)} times the size of the files.`;
  const rest = data.device ? 0 : Math.max(0, m.peak_bytes - held);
  $("#memory .body").append(shareBar([["s0", "weights", m.weight_bytes], ["s1", "cache", m.cache_bytes], ["s2", "activations", m.activation_bytes],
    ["s4", "the rest, mapped files too", rest]].map(([look, name, size]) => [look, name, size, bytes(size)]), held + rest));
}

function ops() {
  const phases = data.kernels ? [{ phase: `a token at ${data.depth}`, seconds: data.seconds, rows: data.kernels }] : data.ops ?? [];
  if (phases.length === 0) return;
  $("#ops").hidden = false;
  const show = (name) => {
    const { seconds, rows } = phases.find((one) => one.phase === name);
    const kind = timeOf(seconds);
    $("#ops .hint").textContent = `${name}: ${kind.say(seconds * kind.scale)} ${kind.unit} in all, each op timed by itself. “Of the limit” is the share of the memory's bandwidth.`;
    barRows($("#ops table"), [data.kernels ? "kernel" : "op", "", "time", "of the limit", kind.unit, "calls"], rows.map((row) =>
      [row.kernel ? `${row.op} (${row.kernel})` : row.op, row.share, percent(row.share, 1), row.bytes > 0 ? percent(row.share_of_limit) : "", number(row.seconds * kind.scale, 3), row.calls]));
  };
  if (phases.length > 1) choices($("#ops .views"), "phase", "Shown is", phases.map(({ phase }) => [phase, phase]), phases[0].phase, show);
  show(phases[0].phase);
}

// The loss of each chunk of a text.
function chunks() {
  const losses = data.chunk_losses;
  if (!(losses?.length > 1)) return;
  $("#runs").hidden = false;
  $("#runs h2").textContent = "Chunk by chunk";
  $("#runs .hint").textContent = "The mean loss of each chunk of the text, in nats a token. Lower is better.";
  const box = make("div"), svg = figure("", "");
  box.append(svg);
  $("#runs .figures").replaceWith(box);
  chart($("svg", svg), `Loss of ${losses.length} chunks: from ${Math.min(...losses).toFixed(3)} to ${Math.max(...losses).toFixed(3)} nats a token`, (add, area) => {
    const y = linearAxis([...losses, data.loss], add, area);
    const x = (i) => area.left + 6 + (i / (losses.length - 1)) * (area.right - area.left - 12);
    add("line", { class: "median", x1: area.left, x2: area.right, y1: y(data.loss), y2: y(data.loss) });
    drawLine(add, losses.map((loss, i) => [x(i), y(loss), `chunk ${i}: ${loss.toFixed(4)}`]), "one");
    ticks(losses.map((_, i) => i), x, add, area, "chunk");
  });
}

function everyFigure() {
  if (series.length === 0) return;
  $("#all").hidden = false;
  $("#all summary").textContent = counted(series.length, "figure");
  rowsOf($("#all table"), [["figure"], ["unit"], ["median", true], ["low", true], ["high", true], ["least", true], ["most", true], ["runs", true]],
    series.map(({ name, unit, scale, say, summary: s }) => ["", name, unit, ...[s.median, s.low, s.high, s.min, s.max].map((v) => say(v * scale)), s.count]));
}

tiles();
baseline();
runs();
tokens();
chunks();
limit();
memory();
ops();
everyFigure();
finish();
