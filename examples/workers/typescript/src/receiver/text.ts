// Finds values in JSON text without reformatting them. The text has been parsed before, so it is known to be valid.

/** The text of the value at this path of names; `null` if there is none. */
export function textAt(text: string, ...names: string[]): string {
  for (const name of names) {
    if (!text.startsWith("{")) text = text.trim();
    // The last duplicate wins, as in JSON.parse.
    text = [...members(text)].filter(([other]) => other === name).at(-1)?.[1] ?? "null";
  }
  return text;
}

/** The names of an object, duplicates included, with the texts of their values. */
export function* members(text: string): Generator<readonly [name: string, value: string]> {
  if (!text.startsWith("{")) return;
  let at = pastBlank(text, 1);
  while (text[at] !== "}") {
    const colon = pastBlank(text, pastValue(text, at));
    const name = JSON.parse(text.slice(at, pastValue(text, at))) as string;
    const start = pastBlank(text, colon + 1);
    const end = pastValue(text, start);
    yield [name, text.slice(start, end)];
    at = pastBlank(text, end);
    if (text[at] === ",") at = pastBlank(text, at + 1);
  }
}

function pastBlank(text: string, at: number): number {
  while (" \t\n\r".includes(text[at] ?? "x")) at += 1;
  return at;
}

function pastValue(text: string, at: number): number {
  let depth = 0;
  do {
    const character = text[at];
    if (character === '"') {
      at = pastString(text, at);
    } else if (character === "{" || character === "[") {
      depth += 1;
      at += 1;
    } else if (character === "}" || character === "]") {
      depth -= 1;
      at += 1;
    } else if (depth === 0) {
      return pastScalar(text, at);
    } else {
      at += 1;
    }
  } while (depth > 0);
  return at;
}

function pastString(text: string, at: number): number {
  at += 1;
  while (text[at] !== '"') at += text[at] === "\\" ? 2 : 1;
  return at + 1;
}

/** A number, true, false or null. */
function pastScalar(text: string, at: number): number {
  while (/[-+.0-9A-Za-z]/.test(text[at] ?? " ")) at += 1;
  return at;
}
