// node look.mjs FOLDER TASK: what look.js says of the task with the module in FOLDER, as JSON.
import { readFile } from "node:fs/promises";
import { pathToFileURL } from "node:url";
import * as tests from "./look.js";

const [, , folder, file] = process.argv;
const api = await import(new URL("index.js", pathToFileURL(`${folder}/`)));
const { run, ...task } = JSON.parse(await readFile(file));
console.log(JSON.stringify(await tests[run](api, (path) => readFile(path), task)));
