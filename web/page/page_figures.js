// Figures: how fast answers came, what the engine takes, and what the model is.
import { megabytes } from "./page_parts.js";

const speeds = [];

export function addSpeed(timings) {
  speeds.push(timings);
  drawSpeeds();
}

function drawSpeeds() {
  $("#speeds").replaceChildren();
  rowsOf($("#speeds"), [["answer", true], ["prompt", true], ["of it kept", true], ["a second", true], ["answer's tokens", true], ["a second", true]],
    speeds.map((t, i) => ["", i + 1, t.prompt_tokens, t.cached_tokens, t.prompt_tokens_per_second.toFixed(1), t.generated_tokens, t.decode_tokens_per_second.toFixed(1)]));
}

export function figuresOf({ info }) {
  speeds.length = 0;
  drawSpeeds();
  $("#notes").replaceChildren(...info.notes.map((note) => make("li", {}, note)));
  const { memory } = info;
  $("#memory").replaceChildren();
  rowsOf($("#memory"), [["memory"], ["", true]], [
    ["", "weights", megabytes(memory.weights)], ["", `cache of ${memory.context} tokens in ${memory.kv_type}`, megabytes(memory.cache)],
    ["", "activations", megabytes(memory.activations)], ["", "the module in all", megabytes(memory.module)]]);
  $("#described").replaceChildren();
  rowsOf($("#described"), [["value of"], ["is"], ["because of"]], info.facts.map(({ name, value, because }) => ["", name, value, because]));
}
