// The diagnosis' page: findings, errors of ops by layer, and the checks.

// Whose values a check judged. A check that judged no op has none.
const kJudged = { truth: "this model's ops against the recording", ops: "the backend's ops against plain loops" };
const judged = Object.keys(kJudged).filter((check) => data.ops.some((op) => op.check === check))
  .map((check) => ({ check, says: kJudged[check], ops: data.ops.filter((op) => op.check === check).map((op) => ({ ...op, excess: op.excess ?? Infinity })) }));
const worstOf = (ops) => ops.reduce((most, op) => (op.excess > most.excess ? op : most), ops[0]);

function drawOps() {
  if (judged.length === 0) return;
  $(".grids").hidden = false;
  drawLegend($("#map .legend"));
  const sick = judged.find(({ ops }) => worstOf(ops).excess > 1) ?? judged[0];
  if (judged.length > 1) choices($("#map .views"), "judged", "Shown are", judged.map(({ check, says }) => [check, says]), sick.check, showJudged);
  showJudged(sick.check);
}

function showJudged(check) {
  const { ops, says } = judged.find((one) => one.check === check);
  const first = ops.find((op) => op.excess > 1);
  const paint = (td, op) => {
    td.className = shade(op.excess) + (op === first ? " first" : "");
    td.textContent = op.excess > 1 ? times(op.excess) : "·";
    td.setAttribute("aria-label", `${place(op)}: ${op.excess > 1 ? `wrong, ${times(op.excess)}` : "right"}`);
  };
  const show = (index) => {
    const op = ops[index];
    const size = op.excess === 0 ? "exactly right" : op.excess <= 1 ? `right: it uses ${(100 * op.excess).toPrecision(2)}% of what rounding explains`
      : Number.isFinite(op.excess) ? `wrong by ${times(op.excess).slice(1)} times what rounding explains` : "NaN or infinite where the plain loops have a number";
    $("#map .detail").replaceChildren(make("h3", {}, place(op)), make("p", {}, `${size[0].toUpperCase()}${size.slice(1)}.`), make("p", { class: "hint" }, `Judged: ${says}.`));
  };
  stageMap($("#map table"), data.order, ops, paint, show, () => {});
  show(ops.indexOf(first ?? worstOf(ops)));
}

function drawLayers() {
  const layers = layersOf(data.ops);
  if (judged.length === 0 || layers.length === 0) return void ($("#depth").hidden = true);
  const looks = ["one", "two"];
  const lines = judged.map(({ ops, says }, i) => [says, looks[i], layers.map((layer) => worstOf(ops.filter((op) => op.layer === layer)))]);
  key($("#depth"), lines.map(([says, look]) => [`mark ${look}`, says]));
  const text = lines.map(([says, , worst]) => `${says}: at most ${times(worstOf(worst.filter(Boolean)).excess)}, in ${place(worstOf(worst.filter(Boolean)))}`);
  chart($("#depth"), `The worst op of each layer over what rounding explains. ${text.join("; ")}`, (add, box) => {
    const y = logAxis([1, ...lines.flatMap(([, , worst]) => worst.filter(Boolean).map((op) => op.excess))], add, box, power);
    const x = (index) => box.left + 10 + (index / Math.max(1, layers.length - 1)) * (box.right - box.left - 20);
    add("line", { class: "allowed", x1: box.left, x2: box.right, y1: y(1), y2: y(1) });
    for (const [, look, worst] of lines) {
      drawLine(add, worst.map((op, i) => op && [x(i), y(op.excess), `${place(op)}: ${times(op.excess)}`]).filter(Boolean), look);
    }
    ticks(layers, x, add, box, "layer");
  }, 400);
}

function drawChecks() {
  const signs = { ok: ["good", "✓", "ok"], finding: ["bad", "✗", "finding"], skipped: ["none", "–", "skipped"] };
  const total = data.checks.reduce((sum, check) => sum + check.seconds, 0);
  const longest = Math.max(...data.checks.map((check) => check.seconds));
  const states = Object.keys(signs).map((state) => [state, data.checks.filter((check) => check.state === state).length]).filter(([, count]) => count > 0);
  $("#checks .hint").textContent = `${counted(data.checks.length, "check")} in ${total.toFixed(1)} s: ${states.map(([state, count]) => `${count} ${signs[state][2]}`).join(", ")}. The bars show where the time went.`;
  const row = (check) => {
    const [look, sign, says] = signs[check.state];
    const bar = make("i");
    bar.style.width = `${(100 * check.seconds) / Math.max(longest, 1e-9)}%`;
    const asks = check.asks[0].toUpperCase() + check.asks.slice(1);
    const took = check.state === "skipped" ? [] : [make("span", { class: "took" }, make("span", { class: "meter", "aria-hidden": "true" }, bar),
      check.seconds < 0.0005 ? "below 1 ms" : `${check.seconds.toFixed(3)} s`)];
    return make("li", { class: look }, make("span", { class: "sign", role: "img", "aria-label": says }, sign),
      make("div", {}, make("p", {}, make("strong", {}, asks), " ", make("code", {}, check.name)), make("p", { class: "saw" }, check.text)), ...took);
  };
  const skipped = data.checks.filter((check) => check.state === "skipped");
  $("#checks > ul").append(...data.checks.filter((check) => check.state !== "skipped").map(row));
  if (skipped.length === 0) return;
  $("#checks details").hidden = false;
  $("#checks summary").textContent = `${counted(skipped.length, "check")} skipped, and why`;
  $("#checks details ul").append(...skipped.map(row));
}

function drawFallbacks() {
  if (!data.fallbacks?.length) return;
  $("#fallbacks").hidden = false;
  $("#fallbacks ul").append(...data.fallbacks.map(({ what, why }) => make("li", {}, make("strong", {}, what), ` ${why}`)));
}

findings();
drawOps();
drawLayers();
drawChecks();
drawFallbacks();
finish();
