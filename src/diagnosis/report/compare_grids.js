// The comparison's maps: stages by layers, and stages of one layer by tokens.

// Share of the allowed error; Infinity for NaN in the run or a stage that it lacks, for which JSON has null.
function ratioOf(stage) {
  if (stage.error === null) return Infinity;
  return stage.error === 0 ? 0 : stage.error / stage.tolerance;
}

// Errors by token are 10 log10(error / allowed); see report_html.cpp.
const kNoError = -100, kInfinite = 127;
const tokenRatio = (code) => (code <= kNoError ? 0 : code >= kInfinite ? Infinity : 10 ** (code / 10));

// The error in a cell of the map: the whole difference from the recording, or the stage's op alone, given right inputs.
const kViews = { alone: "the op alone", whole: "the whole difference" };
let view = "whole";

// The error over the allowed one; undefined where it is not known.
function ratioIn(stage, which) {
  if (which === "whole") return ratioOf(stage);
  const ops = [stage.execution, stage.description].filter(Boolean);
  return ops.length === 0 ? undefined : Math.max(...ops.map((op) => op.excess ?? Infinity));
}

function paint(td, stage) {
  const ratio = ratioIn(stage, view);
  const first = data.stages[data.first] === stage ? ["first"] : [];
  td.className = [stage.computed ? (ratio === undefined ? "untold" : shade(ratio)) : "absent", ...first].join(" ");
  td.textContent = !stage.computed ? "?" : ratio === undefined ? "" : ratio > 1 ? times(ratio) : "·";
  td.setAttribute("aria-label", labelOf(stage, ratio));
}

function labelOf(stage, ratio) {
  if (!stage.computed) return `${place(stage)}: recorded, but this model does not compute it`;
  if (ratio === undefined) return `${place(stage)}: cannot be told`;
  return `${place(stage)}: ${ratio > 1 ? `differs, ${times(ratio)}` : "agrees"}`;
}

function drawMap() {
  stageMap($("#map table"), data.order, data.stages, paint, showStage,
    (index) => data.stages[index].layer !== null && showLayer(data.stages[index].layer));
  showStage(data.first ?? data.worst ?? 0);
}

function drawViews() {
  if (!data.stages.some((stage) => stage.execution || stage.description)) return;
  view = "alone";
  choices($("#map .views"), "view", "Each cell shows", Object.entries(kViews), view, (chosen) => {
    view = chosen;
    for (const td of document.querySelectorAll("#map td[data-at]")) paint(td, data.stages[td.dataset.at]);
  });
}

function showStage(index) {
  const stage = data.stages[index];
  if (!stage) return;
  const lines = [make("h3", {}, stage.key)];
  if (!stage.computed) {
    lines.push(make("p", {}, "The recording holds this stage, but this model does not compute it."));
  } else {
    const ratio = ratioOf(stage);
    lines.push(make("p", {}, `Whole difference: ${error(stage.error)} of the largest value ${number(stage.largest)}, allowed ` +
      `${error(stage.tolerance)} (${times(ratio)}).`));
    const step = stage.phase === "decode" ? "step" : "token";
    const where = [`Worst at ${step} ${stage.worst_token}`];
    if (stage.first_bad_token !== null) where.push(`beyond what is allowed from ${step} ${stage.first_bad_token} on`);
    if (stage.error !== 0) lines.push(make("p", {}, where.join(", ") + "."));
    lines.push(...opLines(stage));
  }
  $("#map .detail").replaceChildren(...lines);
}

// The difference in its parts, in words.
function opLines(stage) {
  const says = (op) => (op.excess === 0 ? "exactly right" : op.agrees ? `right (${times(op.excess)} of what rounding explains)` :
    `wrong, ${times(op.excess ?? Infinity)} what rounding explains, worst at token ${op.token}`);
  const lines = [];
  const judged = (op) => (op.unrecorded ? `The op with the ${op.unrecorded} before it that are not recorded` : "The op alone");
  if (stage.execution) lines.push(`${judged(stage.execution)}, on what this run gave it: ${says(stage.execution)}.`);
  if (stage.description) lines.push(`${judged(stage.description)}, on what the recording gave it: ${says(stage.description)}.`);
  if (stage.inherited !== undefined) lines.push(`Inherited from what it reads: ${error(stage.inherited)}.`);
  if (stage.explained) lines.push("Every op up to here is right by itself: this is rounding that has added up, no fault.");
  if (stage.untold) lines.push(stage.untold);
  return lines.map((line) => make("p", {}, line));
}

function drawTokens() {
  const layers = [...new Set(data.stages.filter((s) => s.tokens).map((s) => s.layer ?? "around"))];
  if (layers.length === 0) return;
  $("#tokens").hidden = false;
  const select = $("#tokens select");
  select.append(...layers.map((layer) => make("option", { value: layer }, layer === "around" ? "none: before and after them" : layer)));
  select.addEventListener("change", () => showLayer(select.value === "around" ? null : Number(select.value)));
  if (data.bin > 1) $("#tokens .bins").textContent = `Each column stands for ${data.bin} tokens and shows the worst of them.`;
  showLayer(data.stages[data.first ?? data.worst ?? 0].layer);
}

function showLayer(layer) {
  if ($("#tokens").hidden) return;
  $("#tokens select").value = layer === null ? "around" : layer;
  for (const head of document.querySelectorAll("#map th[data-layer]")) head.classList.toggle("picked", head.dataset.layer === String(layer));
  const stages = data.stages.filter((stage) => stage.layer === layer && stage.tokens);
  const columns = Math.max(0, ...stages.map((stage) => stage.tokens.length));
  const label = (column) => (data.bin === 1 ? `token ${column}` : `tokens ${column * data.bin} to ${Math.min(data.tokens, (column + 1) * data.bin) - 1}`);
  const every = columns > 24 ? 8 : 4;
  const head = make("tr", { role: "row" }, make("th", {}, "token"));
  for (let column = 0; column < columns; column += every) {
    head.append(make("th", { colspan: Math.min(every, columns - column), style: "text-align:left;padding:0" }, column * data.bin));
  }
  const body = make("tbody");
  stages.forEach((stage, row) => {
    body.append(make("tr", { role: "row" }, make("th", { scope: "row" }, stage.stage),
      ...stage.tokens.map((code, column) => {
        const ratio = tokenRatio(code);
        const says = `${stage.stage}, ${label(column)}: ${ratio > 1 ? times(ratio) + " of" : "within"} what is allowed`;
        return cell(`${row},${column}`, column, 1, shade(ratio), ratio > 1 ? "!" : "", says);
      })));
  });
  const table = make("table", { class: "grid small", "data-columns": columns }, make("thead", {}, head), body);
  $("#tokens table").replaceWith(table);
  widen(table, columns, 13, 24);
  makeGrid(table, (at) => showToken(stages, at, label), () => {});
  const start = Math.max(0, stages.findIndex((stage) => stage === data.stages[data.first]));
  const token = stages[start]?.first_bad_token ?? stages[start]?.worst_token ?? 0;
  showToken(stages, `${start},${Math.floor(token / data.bin)}`, label);
  reveal(table.querySelector(`[data-at="${start},${Math.floor(token / data.bin)}"]`));
}

function showToken(stages, at, label) {
  const [row, column] = at.split(",").map(Number);
  if (!stages[row]) return;
  const ratio = tokenRatio(stages[row].tokens[column]);
  const id = data.bin === 1 && data.prompt?.[column] !== undefined ? `, id ${data.prompt[column]}` : "";
  const piece = data.bin === 1 && data.pieces?.[column] !== undefined ? `, “${data.pieces[column]}”` : "";
  const size = !Number.isFinite(ratio) ? "NaN or infinite" : ratio === 0 ? "no error" : `${Number(ratio.toPrecision(2))} times what is allowed`;
  $("#tokens .detail").replaceChildren(make("h3", {}, `${stages[row].key}, ${label(column)}${id}${piece}`), make("p", {}, `${size}.`));
}
