// Inside: attention of a text's tokens, and a stage's values in every layer.
import { fill, percent, shadeOfShare, sharesOf, TokenTexts, visible } from "./page_parts.js";

const MOST_SHOWN = 64; // of a text's tokens, beyond which no map is readable

let engine, texts;

const text = () => $("#look-text").value;
const failed = (where) => (error) => where.replaceChildren(make("p", { role: "alert" }, error.message));

export function lookInto(opened) {
  engine = opened;
  texts = new TokenTexts(engine);
  const { stages } = engine.info, scores = stages.find(({ name }) => name === "attn_scores");
  $("#look").hidden = !scores;
  $("#attention").hidden = true;
  $("#measures").replaceChildren();
  if (scores) {
    fill($("#look-layer"), scores.layers.map((layer) => [layer, layer]));
    fill($("#look-head"), [["mean", "mean of all"], ...Array.from({ length: scores.heads }, (_, head) => [head, head])]);
  }
  fill($("#measure-stage"), stages.filter(({ name }) => name !== "attn_scores").map(({ name, meaning }) => [name, `${name}: ${meaning}`]), "layer_out");
}

// Rows of shares: one for each token, of one head or their mean.
function sharesOfHead({ shape: [tokens, heads, positions], values }, head) {
  const chosen = head === "mean" ? [...Array(heads).keys()] : [Number(head)];
  return Array.from({ length: tokens }, (_, token) => {
    const sums = new Array(positions).fill(0);
    for (const one of chosen) {
      const at = (token * heads + one) * positions;
      sharesOf(values.subarray(at, at + positions)).forEach((share, i) => { sums[i] += share / chosen.length; });
    }
    return sums;
  });
}

async function drawAttention() {
  const layer = Number($("#look-layer").value);
  const { ids, stages: [scores] } = await engine.look(text(), { stages: ["attn_scores"], layers: [layer] }).result();
  const pieces = (await texts.of(ids)).map(visible), rows = sharesOfHead(scores, $("#look-head").value);
  const first = Math.max(0, ids.length - MOST_SHOWN), shown = [...ids.keys()].slice(first);
  const table = make("table", { class: "grid small", "data-columns": shown.length, "aria-label": $("#attention table").getAttribute("aria-label") });
  table.append(make("tbody", {}, ...shown.map((row) => make("tr", { role: "row" }, make("th", { scope: "row" }, pieces[row]),
    ...shown.filter((column) => column <= row).map((column, i) =>
      cell(`${row},${column}`, i, 1, shadeOfShare(rows[row][column]), "", `“${pieces[row]}” on “${pieces[column]}”: ${percent(rows[row][column])}`))))));
  $("#attention").hidden = false;
  $("#attention table").replaceWith(table);
  widen(table, shown.length, 13, 26);
  const show = (at) => {
    const [row, column] = at.split(",").map(Number);
    const most = [...rows[row].keys()].sort((a, b) => rows[row][b] - rows[row][a]).slice(0, 4);
    $("#attention .detail").replaceChildren(make("p", {}, `“${pieces[row]}” (token ${row}) gives “${pieces[column]}” (token ${column}) ${percent(rows[row][column])}.`),
      make("p", {}, `It looks most at ${most.map((i) => `“${pieces[i]}” (${percent(rows[row][i])})`).join(", ")}.`));
  };
  makeGrid(table, show, () => {});
  show(`${shown.at(-1)},${first}`);
}

async function drawMeasures() {
  const { stages } = await engine.look(text(), { stages: [$("#measure-stage").value], values: false, statistics: true }).result();
  $("#measures").replaceChildren();
  rowsOf($("#measures"), [["layer", true], ["mean", true], ["root mean square", true], ["smallest", true], ["largest", true], ["NaN, infinite", true]],
    stages.map(({ layer, statistics: s }) => [s.nan + s.inf > 0 ? "bad" : "", layer ?? "–", number(s.mean), number(s.rms), number(s.min), number(s.max), s.nan + s.inf]));
}

$("#look").addEventListener("submit", (event) => {
  event.preventDefault();
  drawAttention().catch((error) => {
    $("#attention").hidden = false;
    failed($("#attention .detail"))(error);
  });
});
$("#measure").addEventListener("submit", (event) => {
  event.preventDefault();
  drawMeasures().catch(failed($("#measures")));
});
