"use strict";
// Reads the data and formats numbers. Text of models and prompts only ever becomes textContent.

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

// Share of the allowed error; Infinity for NaN in the run or a stage that it lacks, for which JSON has null.
function ratioOf(stage) {
  if (stage.error === null) return Infinity;
  return stage.error === 0 ? 0 : stage.error / stage.tolerance;
}

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
const two = (x) => (x < 0.01 ? (x === 0 ? "0" : x.toExponential(0)) : twoDigits(x));
const twoDigits = (x) => (x < 9.95 ? x.toFixed(1).replace(/\.0$/, "") : String(Math.round(x)));

function number(x) {
  if (x === null || x === undefined) return "NaN";
  if (x === 0) return "0";
  const size = Math.abs(x);
  return size >= 1e5 || size < 1e-3 ? x.toExponential(2) : String(Number(x.toPrecision(4)));
}
const error = (x) => (x === null ? "NaN or infinite" : x === 0 ? "0" : x.toExponential(1));

// Errors by token are 10 log10(error / allowed); see report_html.cpp.
const kNoError = -100, kInfinite = 127;
const tokenRatio = (code) => (code <= kNoError ? 0 : code >= kInfinite ? Infinity : 10 ** (code / 10));

const stageOf = (key) => data.stages.find((stage) => stage.key === key);
const place = (stage) => (stage.layer === null ? stage.stage : `${stage.stage} of layer ${stage.layer}`);
