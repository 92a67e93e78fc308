// From [{tex, display}, …] on stdin to the HTML of each on stdout: node equations.mjs PATH-OF-katex.mjs

import { readFileSync } from "node:fs";
import { pathToFileURL } from "node:url";

const katex = (await import(pathToFileURL(process.argv[2]))).default;
const asked = JSON.parse(readFileSync(0, "utf8"));
const made = asked.map(({ tex, display }) => katex.renderToString(tex, { displayMode: display, throwOnError: true, strict: true }));
process.stdout.write(JSON.stringify(made));
