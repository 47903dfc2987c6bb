// What comparison and diagnosis share: errors over what is allowed, the map of stages by layers, and findings.

// The class of a cell: a0 to a2 within the allowed error, f1 to f4 beyond, a power of ten each.
function shade(ratio) {
  if (ratio <= 1) return ratio > 0.1 ? "a2" : ratio > 0.01 ? "a1" : "a0";
  return "f" + Math.min(4, Math.floor(Math.log10(ratio)) + 1);
}

function times(ratio) {
  if (!Number.isFinite(ratio)) return "NaN";
  for (const [size, unit] of [[1e9, "G"], [1e6, "M"], [1e3, "k"]]) {
    if (ratio >= 999 * size) return "×1" + unit + "…";
    if (ratio >= size) return "×" + two(ratio / size) + unit;
  }
  return "×" + two(ratio);
}

const error = (x) => (x === null ? "NaN or infinite" : x === 0 ? "0" : x.toExponential(1));
const place = (stage) => (stage.layer === null ? stage.stage : `${stage.stage} of layer ${stage.layer}`);
const layersOf = (stages) => [...new Set(stages.map((s) => s.layer).filter((layer) => layer !== null))].sort((a, b) => a - b);

function drawLegend(box, more = []) {
  const entries = [["a0", "·", "below 1%"], ["a1", "·", "below 10%"], ["a2", "·", "within what is allowed"], ["f1", "×3", "beyond"],
    ["f2", "×30", "10 times"], ["f3", "×300", "100 times"], ["f4", "×3k", "1000 times, NaN"], ...more];
  box.replaceChildren(...entries.map(([look, text, says]) => make("span", {}, make("i", { class: look }, text), says)));
}

// Rows are the stages in `order`, columns the layers; a stage outside the layers spans them all. `paint` fills a cell.
function stageMap(table, order, stages, paint, onShow, onPick) {
  const layers = layersOf(stages);
  const span = Math.max(1, layers.length);
  table.replaceChildren();
  table.dataset.columns = span;
  const at = new Map(stages.map((stage, index) => [`${stage.layer}/${stage.stage}`, index]));
  if (layers.length > 0) {
    table.append(make("thead", {}, make("tr", { role: "row" }, make("th", {}, "layer"),
      ...layers.map((layer) => make("th", { scope: "col", "data-layer": layer }, layer)))));
  }
  const body = make("tbody");
  for (const { stage, meaning } of order) {
    const row = make("tr", { role: "row" }, make("th", { scope: "row", title: meaning }, stage));
    const add = (index, column, width) => {
      const td = cell(index, column, width, "", "", "");
      paint(td, stages[index]);
      row.append(td);
    };
    if (at.has(`null/${stage}`)) {
      add(at.get(`null/${stage}`), 0, span);
    } else {
      if (!layers.some((layer) => at.has(`${layer}/${stage}`))) continue;
      layers.forEach((layer, column) => {
        if (at.has(`${layer}/${stage}`)) add(at.get(`${layer}/${stage}`), column, 1);
        else row.append(make("td"));
      });
    }
    body.append(row);
  }
  table.append(body);
  widen(table, span, 38, 60);
  makeGrid(table, onShow, onPick);
  reveal(table.querySelector("td.first"));
}

// Where a cause lies, and so where it is repaired.
const kKinds = { description: "in the description", data: "in the weights or files", text: "in the text", execution: "in the program" };

function findingCard(finding, index) {
  const where = [finding.stage && `${finding.stage}${finding.layer === null || finding.layer === undefined ? "" : ` of layer ${finding.layer}`}`,
    finding.places > 1 && `${finding.places} places show it`, kKinds[finding.kind], finding.check && `found by ${finding.check}`].filter(Boolean);
  const card = make("article", { class: "finding" },
    make("h3", {}, make("span", { class: "index" }, index + 1), make("code", {}, finding.cause)));
  if (where.length > 0) card.append(make("ul", { class: "tags" }, ...where.map((says) => make("li", {}, says))));
  if (finding.explanation) card.append(make("p", {}, finding.explanation));
  if (finding.repair) card.append(make("p", { class: "repair" }, make("strong", {}, "Repair"), finding.repair));
  if (typeof finding.confidence === "number") {
    const percent = Math.round(finding.confidence * 100), bar = make("i");
    bar.style.width = `${percent}%`;
    card.append(make("p", { class: "belief" }, "Confidence ", make("span", { class: "meter", "aria-hidden": "true" }, bar), ` ${percent}%`));
  }
  if (finding.ruled_out) card.append(make("p", { class: "hint" }, `Ruled out: ${finding.ruled_out}`));
  return card;
}

function findings() {
  if (!data.findings?.length) return;
  $("#findings").hidden = false;
  $("#findings .body").append(...data.findings.map(findingCard));
}
