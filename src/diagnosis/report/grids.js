// Tables of cells: one to stop at with Tab, the others reached with the arrow keys.

function makeGrid(table, onShow, onPick) {
  table.setAttribute("role", "grid");
  const cells = () => [...table.querySelectorAll("td[data-at]")];
  const show = (cell) => {
    for (const other of cells()) other.tabIndex = other === cell ? 0 : -1;
    onShow(cell.dataset.at);
  };
  // The next cell in a direction, over gaps where a layer lacks a stage; a cell that spans all columns is above and
  // below every cell.
  const step = (cell, rows, columns) => {
    const all = [...table.rows];
    let row = cell.parentElement.rowIndex, column = Number(cell.dataset.column);
    for (;;) {
      row += rows, column += columns;
      if (row < 0 || row >= all.length || column < 0 || column >= Number(table.dataset.columns)) return null;
      for (const candidate of all[row].querySelectorAll("td[data-at]")) {
        const from = Number(candidate.dataset.column);
        if (column >= from && column < from + candidate.colSpan && candidate !== cell) return candidate;
      }
    }
  };
  table.addEventListener("focusin", (event) => event.target.dataset.at !== undefined && show(event.target));
  table.addEventListener("mouseover", (event) => {
    const cell = event.target.closest("td[data-at]");
    if (cell) onShow(cell.dataset.at);
  });
  table.addEventListener("click", (event) => {
    const cell = event.target.closest("td[data-at]");
    if (cell) cell.focus(), onPick(cell.dataset.at);
  });
  table.addEventListener("keydown", (event) => {
    const moves = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] };
    const cell = event.target.closest("td[data-at]");
    if (!cell) return;
    if (event.key === "Enter" || event.key === " ") onPick(cell.dataset.at);
    else if (moves[event.key]) step(cell, ...moves[event.key])?.focus();
    else return;
    event.preventDefault();
  });
  const start = table.querySelector("td.first") ?? cells()[0];
  for (const cell of cells()) cell.tabIndex = cell === start ? 0 : -1;
}

function cell(at, column, span, look, text, label) {
  return make("td", { class: look, colspan: span > 1 ? span : null, role: "gridcell", tabindex: -1, "aria-label": label,
    "data-at": at, "data-column": column }, text);
}

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
  const table = $("#map table");
  const layers = [...new Set(data.stages.filter((s) => s.layer !== null).map((s) => s.layer))].sort((a, b) => a - b);
  const span = Math.max(1, layers.length);
  table.dataset.columns = span;
  const at = new Map(data.stages.map((stage, index) => [`${stage.layer}/${stage.stage}`, index]));
  if (layers.length > 0) {
    table.append(make("thead", {}, make("tr", { role: "row" }, make("th", {}, "layer"),
      ...layers.map((layer) => make("th", { scope: "col", "data-layer": layer }, layer)))));
  }
  const body = make("tbody");
  for (const { stage, meaning } of data.order) {
    const row = make("tr", { role: "row" }, make("th", { scope: "row", title: meaning }, stage));
    const add = (index, column, width) => {
      const td = cell(index, column, width, "", "", "");
      paint(td, data.stages[index]);
      row.append(td);
    };
    if (at.has(`null/${stage}`)) {
      add(at.get(`null/${stage}`), 0, span);
    } else {
      layers.forEach((layer, column) => {
        if (at.has(`${layer}/${stage}`)) add(at.get(`${layer}/${stage}`), column, 1);
        else row.append(make("td"));
      });
    }
    body.append(row);
  }
  table.append(body);
  widen(table, span, 38, 60);
  makeGrid(table, showStage, (index) => data.stages[index].layer !== null && showLayer(data.stages[index].layer));
  showStage(data.first ?? data.worst ?? 0);
  reveal(table.querySelector("td.first"));
}

function drawViews() {
  if (!data.stages.some((stage) => stage.execution || stage.description)) return;
  view = "alone";
  const choices = Object.entries(kViews).map(([name, says]) => {
    const input = make("input", { type: "radio", name: "view", value: name, checked: name === view });
    input.addEventListener("change", () => {
      view = name;
      for (const td of document.querySelectorAll("#map td[data-at]")) paint(td, data.stages[td.dataset.at]);
    });
    return make("label", {}, input, " ", says);
  });
  $("#map .views").append(make("span", {}, "Each cell shows"), ...choices);
}

function drawLegend() {
  const entries = [["a0", "·", "below 1%"], ["a1", "·", "below 10%"], ["a2", "·", "within what is allowed"], ["f1", "×3", "beyond"],
    ["f2", "×30", "10 times"], ["f3", "×300", "100 times"], ["f4", "×3k", "1000 times, NaN"], ["absent", "?", "not computed"]];
  if (data.stages.some((stage) => stage.untold)) entries.push(["untold", "", "cannot be told"]);
  $("#map .legend").append(...entries.map(([look, text, says]) =>
    make("span", {}, make("i", { class: look }, text), says)));
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
  if (stage.execution) lines.push(`The op alone, on what this run gave it: ${says(stage.execution)}.`);
  if (stage.description) lines.push(`The op alone, on what the recording gave it: ${says(stage.description)}.`);
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

// Few columns may be wide, as far as the page has room beside the row heads.
function widen(table, columns, least, most) {
  const room = Math.min(480, table.closest(".scroll").clientWidth - 130);
  table.style.setProperty("--cell", `${Math.max(least, Math.min(most, Math.floor(room / columns) - 1))}px`);
}

// Scrolls a cell's own box, not the page, until the cell is in the middle of what the row heads leave free.
function reveal(td) {
  if (!td) return;
  const box = td.closest(".scroll"), head = td.parentElement.querySelector("th").offsetWidth;
  box.scrollLeft = td.offsetLeft - head - (box.clientWidth - head - td.offsetWidth) / 2;
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
