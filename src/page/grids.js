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
