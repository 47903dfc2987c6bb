// The conversation, and of each answer how sure the model was of every token and where it looked for it.
import { fill, percent, rove, shadeOfDoubt, shadeOfShare, sharesOf, TokenTexts, visible } from "./page_parts.js";
import { addSpeed } from "./page_figures.js";

const MOST_TOKENS = 512; // of an answer
const OTHERS = 5; // likely tokens that are shown beside the chosen one
const KEPT = "conversation"; // in the tab, so that it is there after a crash

let engine, texts, stopping, say, messages = [];

const keep = () => { sessionStorage[KEPT] = JSON.stringify(messages); };
const scroll = (line) => line.scrollIntoView({ block: "nearest" });

function add(role, text) {
  const line = make("article", { class: role, "aria-label": role === "user" ? "You" : "Answer" }, make("p", { class: "text" }, text));
  $("#conversation").append(line);
  return line;
}

export function chatWith(opened, tell) {
  stopping?.abort();
  engine = opened;
  say = tell;
  texts = new TokenTexts(engine);
  try {
    messages = JSON.parse(sessionStorage[KEPT] ?? "[]");
  } catch {
    messages = [];
  }
  $("#conversation").replaceChildren();
  for (const { role, content } of messages) add(role, content);
}

async function answer(line, generation) {
  const made = { ids: [], logprobs: [] };
  const text = line.querySelector(".text");
  for await (const piece of generation) {
    text.textContent += piece.text;
    made.ids.push(...piece.ids);
    made.logprobs.push(...piece.logprobs);
    scroll(line);
  }
  return { ...made, ...await generation.result() };
}

async function ask(content) {
  const question = add("user", content);
  const line = add("assistant", ""), mine = engine;
  stopping = new AbortController();
  $("#send").disabled = true;
  $("#stop").disabled = false;
  $("#conversation").setAttribute("aria-busy", "true"); // so that it is read when it is whole
  messages.push({ role: "user", content });
  keep();
  const prompt = engine.info.has_chat_template ? messages : content;
  try {
    const result = await answer(line, engine.generate(prompt, { max_tokens: MOST_TOKENS, logprobs: OTHERS, signal: stopping.signal }));
    const { timings } = result;
    addSpeed(timings);
    line.append(under(result, mine));
    const again = engine.info.notes.filter((note) => note.startsWith("The model was loaded again"));
    say([`${timings.generated_tokens} tokens, ${timings.decode_tokens_per_second.toFixed(1)} a second.`, ...again].join(" "));
  } catch (error) {
    const stopped = error.name === "AbortError";
    const lost = error.code === "lost" ? " The conversation is kept: send a message, and the model is loaded again." : "";
    say(stopped ? "Stopped." : error.message + lost, !stopped);
  } finally {
    const said = line.querySelector(".text").textContent;
    if (said) messages.push({ role: "assistant", content: said });
    else {
      messages.pop(); // what has no answer can be asked again
      line.remove();
      question.remove();
      $("#message").value ||= content;
    }
    keep();
    $("#conversation").removeAttribute("aria-busy");
    $("#send").disabled = false;
    $("#stop").disabled = true;
  }
}

// The line below an answer: figures, and the button that opens it token by token.
function under({ ids, logprobs, prompt_ids, timings }, of) {
  const button = make("button", { type: "button", "aria-expanded": "false" }, "Token by token");
  const line = make("div", { class: "under" }, button,
    make("span", {}, `${timings.generated_tokens} tokens, ${timings.decode_tokens_per_second.toFixed(1)} a second`));
  const box = make("div", { hidden: true });
  let drawn = false;
  button.addEventListener("click", async () => {
    if (of !== engine) return say("That answer's model is no longer open.", true);
    box.hidden = !box.hidden;
    button.setAttribute("aria-expanded", !box.hidden);
    if (drawn) return;
    drawn = true;
    await drawTokens(box, { ids, logprobs, prompt_ids });
  });
  return make("div", {}, line, box);
}

async function drawTokens(box, answer) {
  const pieces = await texts.of(answer.ids);
  const group = make("div", { class: "tokens", role: "group", "aria-label": "The answer's tokens, with how likely each was" });
  const chosen = make("div", { class: "chosen", "aria-live": "polite" },
    make("p", { class: "hint" }, "Colour: how unsure the model was. Choose a token to see what else it might have said, and where it looked."));
  const buttons = answer.logprobs.map(({ logprob }, index) => {
    const probability = Math.exp(logprob);
    const button = make("button", { type: "button", class: shadeOfDoubt(probability), tabindex: index === 0 ? 0 : -1, "aria-pressed": "false",
      "aria-label": `${visible(pieces[index])}, ${percent(probability)}` }, pieces[index]);
    button.addEventListener("click", () => {
      for (const other of buttons) other.setAttribute("aria-pressed", other === button);
      showToken(chosen, answer, index).catch((error) => say(error.message, true));
    });
    return button;
  });
  group.append(...buttons);
  rove(group, "button");
  box.append(group, chosen);
}

async function showToken(box, answer, index) {
  const { top } = answer.logprobs[index];
  const others = make("table", { class: "list" });
  const names = await texts.of(top.map(({ id }) => id));
  rowsOf(others, [["might have said"], ["probability", true]],
    top.map(({ id, logprob }, i) => [id === answer.ids[index] ? "better" : "", visible(names[i]), percent(Math.exp(logprob))]));
  const layer = make("select"), strip = make("div"), { layers } = engine.info;
  const withScores = engine.info.stages.find(({ name }) => name === "attn_scores");
  box.replaceChildren(others);
  if (!withScores) return;
  fill(layer, withScores.layers.map((one) => [one, one]), withScores.layers.at(-1) ?? layers - 1);
  const draw = () => drawAttention(strip, answer, index, Number(layer.value)).catch((error) => say(error.message, true));
  layer.addEventListener("change", draw);
  box.append(make("p", { class: "row" }, make("label", {}, "Where it looked, mean of all heads, in layer ", layer)), strip);
  await draw();
}

// The tokens before the chosen one, shaded by the share of attention that they got when it was chosen.
async function drawAttention(box, { ids, prompt_ids }, index, layer) {
  const before = [...prompt_ids, ...ids.slice(0, index)];
  const { stages: [scores] } = await engine.look(before, { stages: ["attn_scores"], layers: [layer], tokens: [before.length - 1] }).result();
  const [, heads, positions] = scores.shape, shares = new Array(positions).fill(0);
  for (let head = 0; head < heads; ++head) {
    sharesOf(scores.values.subarray(head * positions, (head + 1) * positions)).forEach((share, i) => { shares[i] += share / heads; });
  }
  const pieces = await texts.of(before);
  const most = [...shares.keys()].sort((a, b) => shares[b] - shares[a]).slice(0, 5);
  box.replaceChildren(make("p", {}, `Most on ${most.map((i) => `“${visible(pieces[i])}” (${percent(shares[i])})`).join(", ")}.`),
    make("p", { class: "strip", "aria-hidden": "true" }, ...pieces.map((piece, i) => make("span", { class: shadeOfShare(shares[i]) }, piece))));
}

$("#stop").addEventListener("click", () => stopping?.abort());
$("#clear").addEventListener("click", () => {
  stopping?.abort();
  messages = [];
  keep();
  $("#conversation").replaceChildren();
  $("#message").focus();
});
$("#ask").addEventListener("submit", (event) => {
  event.preventDefault();
  const content = $("#message").value;
  $("#message").value = "";
  ask(content);
});
$("#message").addEventListener("keydown", (event) => {
  if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
  event.preventDefault();
  if (!$("#send").disabled) $("#ask").requestSubmit();
});
