// What a measurement holds, as series of runs with names, units and the figure of a baseline that each belongs to.

const kRate = { unit: "tok/s", say: (x) => (x >= 1000 ? String(Math.round(x)) : x >= 100 ? x.toFixed(0) : x.toPrecision(3)), scale: 1, better: "more" };

// Times in the unit that gives the median one to three digits before the point.
function timeOf(median) {
  const [unit, scale] = median >= 1 ? ["s", 1] : median >= 1e-3 ? ["ms", 1e3] : ["µs", 1e6];
  return { unit, scale, say: (x) => (x >= 100 ? x.toFixed(0) : x.toPrecision(3)), better: "less" };
}

function bytes(count) {
  const [unit, size] = count >= 1e9 ? ["GB", 1e9] : count >= 1e6 ? ["MB", 1e6] : ["kB", 1e3];
  return `${(count / size).toPrecision(3)} ${unit}`;
}
const percent = (share, digits = 0) => `${(100 * share).toFixed(digits)}%`;

function decodeName(line) {
  if (line.sequences > 1) return `Generating ${line.sequences} sequences at once`;
  return line.depth > 0 ? `Generating after ${line.depth} tokens` : "Generating";
}
const decodeFigure = (line) => (line.sequences > 1 ? `decode of ${line.sequences} sequences` : `decode @${line.depth}`);

function seriesOf() {
  const list = [];
  const add = (name, figure, summary, kind) => summary && list.push({ name, figure, summary, ...(kind ?? timeOf(summary.median)) });
  for (const line of data.decode ?? []) add(decodeName(line), `${decodeFigure(line)}, tok/s`, line.tokens_per_second, kRate);
  if (data.time_to_first_token) add(`First token of a prompt of ${data.time_to_first_token.prompt_tokens}`, null, data.time_to_first_token.seconds);
  if (data.prefill) add(`Reading a prompt of ${data.prefill.tokens}`, `prefill ${data.prefill.tokens}, tok/s`, data.prefill.tokens_per_second, kRate);
  add("Loading", "load, s", data.load_seconds);
  for (const [way, from] of [["cold", "the disk"], ["warm", "memory"]]) {
    add(`Loading from ${from}`, `${way} load, s`, data[way]?.ready_seconds);
    add(`Loading from ${from}, to a first token`, `${way} load to first token, s`, data[way]?.first_token_seconds);
  }
  return list;
}

// How a figure changed against the baseline: a class and words; nothing without one.
function changeOf(name) {
  const figure = data.comparison?.figures.find((one) => one.name === name);
  return figure && describeChange(figure);
}

function describeChange(figure) {
  const change = figure.times_as_good - 1;
  const says = change >= 1 ? `${number(figure.times_as_good, 2)} times as good` : `${percent(Math.abs(change), 1)} ${change < 0 ? "worse" : "better"}`;
  if (Math.abs(change) < 0.0005) return ["same", "as before"];
  if (figure.certain === "no") return ["same", figure.low === figure.high ? says : `${says}, within noise`];
  return [figure.certain, figure.change === "worse" ? `${says}: too much` : says];
}
