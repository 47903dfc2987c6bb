import { Doppler } from "doppler-web";

const $ = (id) => document.getElementById(id);
const engines = new Map(); // of the addresses that were opened

$("ask").addEventListener("submit", async (event) => {
  event.preventDefault();
  const model = $("model").value;
  $("answer").textContent = "";
  try {
    const onProgress = (share, what) => ($("status").textContent = `${what} ${Math.round(100 * share)} %`);
    if (!engines.has(model)) engines.set(model, await Doppler.load(model, { onProgress }));
    $("status").textContent = "";
    const stream = await engines.get(model).chat.completions.create({
      messages: [{ role: "user", content: $("message").value }],
      stream: true,
    });
    for await (const { choices } of stream) $("answer").textContent += choices[0].delta.content ?? "";
  } catch (error) {
    engines.delete(model);
    $("status").textContent = error.message;
  }
});
