// What people choose or drop, and what the store has.
import { Store } from "./index.js";
import { megabytes } from "./page_parts.js";

// Files of a dropped folder, with the paths that they have in it.
async function filesIn(entry) {
  if (entry.isFile) {
    const file = await new Promise((resolve, reject) => entry.file(resolve, reject));
    return [[entry.fullPath.replace(/^\//, ""), file]];
  }
  const reader = entry.createReader(), all = [];
  for (;;) { // it gives at most a hundred at a time
    const some = await new Promise((resolve, reject) => reader.readEntries(resolve, reject));
    if (some.length === 0) return (await Promise.all(all.map(filesIn))).flat();
    all.push(...some);
  }
}

export async function dropped(transfer) {
  const entries = [...transfer.items].map((item) => item.webkitGetAsEntry?.()).filter(Boolean);
  return entries.length > 0 ? new Map((await Promise.all(entries.map(filesIn))).flat()) : [...transfer.files];
}

export function listenForDrops(area, onSource) {
  for (const name of ["dragenter", "dragover"]) {
    area.addEventListener(name, (event) => {
      event.preventDefault();
      area.classList.add("over");
    });
  }
  area.addEventListener("dragleave", () => area.classList.remove("over"));
  area.addEventListener("drop", async (event) => {
    event.preventDefault();
    area.classList.remove("over");
    onSource(await dropped(event.dataTransfer));
  });
}

// The models of this device, with a button to open each and one to remove it.
export async function showKept(box, store, { onOpen, onError }) {
  if (!Store.available) return;
  const models = await store.list();
  box.hidden = models.length === 0;
  const again = () => showKept(box, store, { onOpen, onError });
  box.querySelector("ul").replaceChildren(...models.map(({ key, name, source, asked, bytes, complete }) => {
    const open = make("button", { type: "button" }, complete ? "Open" : "Go on"), remove = make("button", { type: "button", "aria-label": `Remove ${name}` }, "Remove");
    open.addEventListener("click", () => onOpen(asked ?? source));
    remove.addEventListener("click", () => store.remove(key).then(again, onError));
    return make("li", {}, make("span", {}, `${name}, ${megabytes(bytes)}${complete ? "" : ", not complete"}`), open, remove);
  }));
}
