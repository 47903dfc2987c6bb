// node node.mjs FOLDER TASK: what cases.js says of the task with the module in FOLDER, as JSON.
import { readFile } from "node:fs/promises";
import { pathToFileURL } from "node:url";
import { runAll } from "./cases.js";

const [, , folder, task] = process.argv;
const base = pathToFileURL(`${folder}/`);
const api = { ...await import(new URL("index.js", base)), base };
const { files, ...rest } = JSON.parse(await readFile(task));
console.log(JSON.stringify(await runAll(api, (path) => readFile(path), rest)));
