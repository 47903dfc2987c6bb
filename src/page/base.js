"use strict";
// Reads the data, makes elements and formats numbers. Text of models and prompts only ever becomes textContent.

const data = JSON.parse(document.getElementById("data").textContent);
const $ = (selector, root = document) => root.querySelector(selector);

function make(name, attributes = {}, ...children) {
  const element = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (value !== null && value !== undefined && value !== false) element.setAttribute(key, value);
  }
  element.append(...children.map((child) => (child instanceof Node ? child : String(child))));
  return element;
}

const two = (x) => (x < 0.01 ? (x === 0 ? "0" : x.toExponential(0)) : twoDigits(x));
const twoDigits = (x) => (x < 9.95 ? x.toFixed(1).replace(/\.0$/, "") : String(Math.round(x)));

function number(x, digits = 4) {
  if (x === null || x === undefined) return "NaN";
  if (x === 0) return "0";
  const size = Math.abs(x);
  return size >= 1e5 || size < 1e-3 ? x.toExponential(2) : String(Number(x.toPrecision(digits)));
}

const counted = (count, what) => `${count} ${what}${count === 1 ? "" : "s"}`;

// A table of rows; a column is [head, is it of numbers]. Each row begins with its class.
function rowsOf(table, heads, rows) {
  table.append(make("thead", {}, make("tr", {}, ...heads.map(([head, numeric]) => make("th", { scope: "col", class: numeric ? "number" : null }, head)))),
    make("tbody", {}, ...rows.map(([look, ...cells]) => make("tr", { class: look || null },
      ...cells.map((content, i) => make("td", { class: heads[i][1] ? "number" : null }, content))))));
}

// A choice between ways to see one section.
function choices(box, name, asks, entries, chosen, onChange) {
  box.setAttribute("role", "radiogroup");
  box.append(make("span", {}, asks), ...entries.map(([value, says]) => {
    const input = make("input", { type: "radio", name, value, checked: value === chosen });
    input.addEventListener("change", () => onChange(value));
    return make("label", {}, input, " ", says);
  }));
}

// The last line of every page's program.
function finish() {
  for (const box of document.querySelectorAll(".scroll")) {
    if (!box.querySelector("[tabindex]")) box.tabIndex = 0;  // so that the keyboard can scroll it
  }
}
