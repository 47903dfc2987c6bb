// Doctor and comparison: their forms, and pictures of what they say, drawn as the program's own pages are.

// A form that runs one question at a time, with progress and a way to stop it.
function asking(form, run, show) {
  const progress = form.querySelector("progress"), abort = form.querySelector(".abort");
  let stopping;
  abort.addEventListener("click", () => stopping?.abort());
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    if (stopping) return;
    stopping = new AbortController();
    progress.hidden = abort.hidden = false;
    progress.value = 0;
    try {
      show(await run({ signal: stopping.signal, onProgress: (share) => { progress.value = share; } }));
    } catch (error) {
      show(undefined, error.name === "AbortError" ? "Stopped." : error.message);
    } finally {
      stopping = undefined;
      progress.hidden = abort.hidden = true;
    }
  });
}

function choosing(input, says, none) {
  input.addEventListener("change", () => { says.textContent = input.files[0]?.name ?? none; });
  return () => input.files[0];
}

// --- the doctor

let examine = () => {};
const doctorsTruth = choosing($("#doctor-recording"), $("#doctor-chosen"), "No recording.");

// `ask(options)`: the doctor, of the model that is open or of one that was refused.
export function examineWith(ask) {
  examine = ask;
  $("#diagnosis").replaceChildren();
}
export function examineRefused() {
  $("#examine").requestSubmit();
  $("#doctor").scrollIntoView();
}

function checkLine({ name, asks, state, text }) {
  const [look, sign] = { ok: ["good", "✓"], finding: ["bad", "✗"], skipped: ["none", "–"] }[state];
  return make("li", { class: look }, make("span", { class: "sign", role: "img", "aria-label": state }, sign),
    make("div", {}, make("p", {}, make("strong", {}, asks[0].toUpperCase() + asks.slice(1)), " ", make("code", {}, name)), make("p", { class: "saw" }, text)));
}

function showDiagnosis(found, failed) {
  if (!found) return $("#diagnosis").replaceChildren(make("p", { class: "verdict bad", role: "alert" }, failed));
  const skipped = found.checks.filter(({ state }) => state === "skipped"), done = found.checks.filter(({ state }) => state !== "skipped");
  const verdict = found.healthy ? `Healthy, as far as examined: ${counted(done.length, "check")} found nothing.`
    : `Sick: ${counted(found.findings.length, "finding")} by ${counted(done.length, "check")}.`;
  const parts = [make("p", { class: `verdict ${found.healthy ? "good" : "bad"}` }, verdict), ...found.findings.map(findingCard)];
  const map = mapOfOps(found.ops);
  if (map) parts.push(map.box);
  parts.push(make("h2", {}, "What was asked"), make("ul", { class: "checks" }, ...done.map(checkLine)));
  if (skipped.length > 0) {
    parts.push(make("details", {}, make("summary", {}, `${counted(skipped.length, "check")} skipped, and why`), make("ul", { class: "checks" }, ...skipped.map(checkLine))));
  }
  if (found.untested?.length > 0) parts.push(make("p", { class: "hint" }, `The recording does not test: ${found.untested.join("; ")}.`));
  $("#diagnosis").replaceChildren(...parts);
  map?.draw();
}

// Each op alone over what rounding explains, by stage and layer: those that the recording judged, else those of the backend.
function mapOfOps(all) {
  const check = ["truth", "ops"].find((name) => all.some((op) => op.check === name && op.excess > 1)) ?? ["truth", "ops"].find((name) => all.some((op) => op.check === name));
  if (!check) return undefined;
  const ops = all.filter((op) => op.check === check).map((op) => ({ ...op, excess: op.excess ?? Infinity }));
  const table = make("table", { class: "grid", "aria-label": "Error of each op over what rounding explains, by stage and layer" });
  const legend = make("div", { class: "legend", "aria-hidden": "true" }), detail = make("div", { class: "detail", "aria-live": "polite" });
  const hint = check === "truth" ? "Every op ran alone, on the recording's own values." : "Every op ran alone, beside plain loops.";
  const box = make("div", {}, make("h2", {}, "Where"), make("p", { class: "hint" }, `${hint} Colour is its error over what rounding explains. Move with the arrow keys.`),
    legend, make("div", { class: "scroll" }, table), detail);
  const first = ops.find((op) => op.excess > 1);
  const paint = (td, op) => {
    td.className = shade(op.excess) + (op === first ? " first" : "");
    td.textContent = op.excess > 1 ? times(op.excess) : "·";
    td.setAttribute("aria-label", `${place(op)}: ${op.excess > 1 ? `wrong, ${times(op.excess)}` : "right"}`);
  };
  const show = (index) => detail.replaceChildren(make("h3", {}, place(ops[index])), make("p", {}, ops[index].excess <= 1
    ? `Right: it uses ${(100 * ops[index].excess).toPrecision(2)} % of what rounding explains.` : `Wrong: ${times(ops[index].excess)} what rounding explains.`));
  const draw = () => {
    drawLegend(legend);
    stageMap(table, orderOf(ops), ops, paint, show, () => {});
    show(Math.max(0, ops.indexOf(first)));
  };
  return { box, draw };
}

asking($("#examine"), (options) => examine({ reference: doctorsTruth(), ...options }), showDiagnosis);

// --- the comparison

let compared;
const comparisonsTruth = choosing($("#compare-recording"), $("#compare-chosen"), "No recording: beside plain loops.");

export function compareWith(engine) {
  compared = engine;
  $("#comparison").hidden = true;
}

// Stages in the order in which the first layer that has them computes them.
function orderOf(stages) {
  return [...new Set(stages.map(({ stage }) => stage))].map((stage) => ({ stage, meaning: compared?.info.stages.find(({ name }) => name === stage)?.meaning ?? "" }));
}

// A stage's error over what is allowed: of all of it, or of its op alone. undefined: cannot be told.
const VIEWS = { alone: "the op alone", whole: "the whole difference" };
function ratioOf(stage, view) {
  if (view === "whole") return stage.error === null ? Infinity : stage.error / (stage.tolerance || 1);
  const ops = [stage.execution, stage.description].filter(Boolean);
  return ops.length === 0 ? undefined : Math.max(...ops.map(({ excess }) => excess ?? Infinity));
}

function sentence({ agrees, found, expected, stages_compared, first_divergence, decode }) {
  const chosen = decode.steps > 0 ? ` ${decode.top1_equal} of ${decode.steps} tokens are the same.` : "";
  if (agrees) return `Agrees: ${counted(stages_compared, "stage")} of ${found} lie within what is allowed of ${expected}.${chosen}`;
  const why = { execution: "the program computes it wrongly", description: "the model's description or weights give another result", total: "it differs too much",
    not_computed: "the model does not compute it" }[first_divergence?.why];
  return `Differs${first_divergence ? `, first in ${place(first_divergence)}: ${why}` : ": other tokens are chosen"}.${chosen}`;
}

function showComparison(comparison, failed) {
  const box = $("#comparison"), verdict = $("#comparison .verdict");
  box.hidden = false;
  verdict.textContent = comparison ? sentence(comparison) : failed;
  verdict.className = `verdict ${comparison?.agrees ? "good" : "bad"}`;
  for (const part of [$(".views", box), $(".legend", box), $(".detail", box), $("table", box)]) part.replaceChildren();
  if (!comparison) return;
  const { stages } = comparison, first = comparison.first_divergence?.key;
  const judged = stages.some(({ execution, description }) => execution || description);
  drawLegend($(".legend", box));
  const draw = (view) => drawStages(stages, first, view);
  if (judged) choices($(".views", box), "view", "Each cell shows", Object.entries(VIEWS), "alone", draw);
  draw(judged ? "alone" : "whole");
}

function drawStages(stages, first, view) {
  const paint = (td, stage) => {
    const ratio = ratioOf(stage, view);
    td.className = [stage.computed ? (ratio === undefined ? "untold" : shade(ratio)) : "absent", ...(stage.key === first ? ["first"] : [])].join(" ");
    td.textContent = !stage.computed ? "?" : ratio === undefined ? "" : ratio > 1 ? times(ratio) : "·";
    td.setAttribute("aria-label", `${place(stage)}: ${!stage.computed ? "not computed" : ratio === undefined ? "cannot be told" : ratio > 1 ? `differs, ${times(ratio)}` : "agrees"}`);
  };
  const show = (index) => showStage(stages[index]);
  stageMap($("#comparison table"), orderOf(stages), stages, paint, show, () => {});
  show(Math.max(0, stages.findIndex(({ key }) => key === first)));
}

function showStage(stage) {
  const says = (op) => (op.excess === 0 ? "exactly right" : op.agrees ? `right (${times(op.excess)} of what rounding explains)` : `wrong, ${times(op.excess ?? Infinity)} what rounding explains, worst at token ${op.token}`);
  const lines = [`The whole difference is ${error(stage.error)} of the largest value ${number(stage.largest)}, allowed are ${error(stage.tolerance)}.`];
  if (stage.first_bad_token !== null) lines.push(`It is beyond what is allowed from token ${stage.first_bad_token} on, worst at token ${stage.worst_token}.`);
  if (stage.execution) lines.push(`The op alone, on what this run gave it: ${says(stage.execution)}.`);
  if (stage.description) lines.push(`The op alone, on what the recording gave it: ${says(stage.description)}.`);
  if (stage.inherited !== null) lines.push(`Inherited from what it reads: ${error(stage.inherited)}.`);
  if (stage.untold) lines.push(stage.untold);
  $("#comparison .detail").replaceChildren(make("h3", {}, place(stage)), ...lines.map((line) => make("p", {}, line)));
}

asking($("#compare-with"), (options) => compared.compare(comparisonsTruth() ?? { with: "reference", prompt: $("#compare-text").value }, options), showComparison);
