// The page: opens a model, and talks to it: through its chat template, or where it has none by going on with the text.
import { Doppler } from "./index.js";

const $ = (id) => document.getElementById(id);
let engine, messages = [], stopping;

function say(text, failed = false) {
  $("status").textContent = text;
  $("status").classList.toggle("failed", failed);
}

function downloading({ file, bytes, total, bytes_per_second, seconds_left, waiting }) {
  const mb = (count) => `${Math.round(count / 1e6)} MB`;
  const speed = bytes_per_second > 0 ? `, ${(bytes_per_second / 1e6).toFixed(1)} MB a second, ${Math.ceil(seconds_left)} s left` : "";
  return `${waiting ? "Another tab downloads" : "Downloading"} ${file}: ${mb(bytes)} of ${mb(total)}${speed}…`;
}

function add(role, text) {
  const line = document.createElement("p");
  line.className = role;
  line.textContent = text;
  $("conversation").append(line);
  return line;
}

$("open").addEventListener("submit", async (event) => {
  event.preventDefault();
  const chosen = [...$("files").files, ...$("folder").files];
  const source = chosen.length > 0 ? chosen : $("address").value;
  if (!source) return say("Choose a file or a folder, or give an address.", true);
  engine?.close();
  engine = undefined;
  $("ask").hidden = true;
  $("progress").hidden = false;
  say("Reading the model…");
  try {
    engine = await Doppler.load(source, {
      backend: $("backend").value,
      onProgress(share, what, told) {
        $("progress").value = share;
        say(told ? downloading(told) : `${what}…`);
      },
    });
    messages = [];
    $("conversation").replaceChildren();
    $("ask").hidden = false;
    const { family, layers, backend, device, notes } = engine.info;
    const where = backend === "gpu" ? `the GPU (${device})` : "the processor";
    say([`${family}, ${layers} layers, is ready on ${where}.`, ...notes].join(" "));
  } catch (error) {
    say(error.message, true);
  } finally {
    $("progress").hidden = true;
  }
});

$("stop").addEventListener("click", () => stopping?.abort());

$("ask").addEventListener("submit", async (event) => {
  event.preventDefault();
  const content = $("message").value;
  $("message").value = "";
  add("user", content);
  const line = add("assistant", "");
  stopping = new AbortController();
  $("send").disabled = true;
  $("stop").disabled = false;
  messages.push({ role: "user", content });
  const prompt = engine.info.has_chat_template ? messages : content;
  const generation = engine.generate(prompt, { max_tokens: 512, signal: stopping.signal });
  try {
    for await (const { text } of generation) line.textContent += text;
    const { timings } = await generation.result();
    say(`${timings.generated_tokens} tokens, ${timings.decode_tokens_per_second.toFixed(1)} a second.`);
  } catch (error) {
    say(error.name === "AbortError" ? "Stopped." : error.message, error.name !== "AbortError");
  } finally {
    messages.push({ role: "assistant", content: line.textContent });
    $("send").disabled = false;
    $("stop").disabled = true;
  }
});
