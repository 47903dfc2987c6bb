// What several parts of the page need. The page's own scripts, report/*.js, give make(), $() and rowsOf() to all.

// How a part of a whole is shaded: p0 to p4.
export const shadeOfShare = (share) => `p${[0.02, 0.1, 0.25, 0.5].filter((least) => share >= least).length}`;
// How unlikely a token was: u0 to u4.
export const shadeOfDoubt = (probability) => `u${[0.9, 0.6, 0.3, 0.1].filter((most) => probability < most).length}`;
export const percent = (share) => `${share >= 0.995 || share === 0 ? Math.round(100 * share) : Number((100 * share).toPrecision(2))} %`;
export const megabytes = (bytes) => (bytes < 1e9 ? `${Number((bytes / 1e6).toPrecision(bytes < 1e7 ? 2 : 3))} MB` : `${(bytes / 1e9).toFixed(1)} GB`);

// Shares of attention from a head's scores; positions that are masked get none.
export function sharesOf(scores) {
  const most = scores.reduce((a, b) => Math.max(a, b), -Infinity);
  const weights = Array.from(scores, (score) => Math.exp(score - most));
  const sum = weights.reduce((a, b) => a + b, 0);
  return weights.map((weight) => weight / sum);
}

// The texts of tokens, one by one; special ones have none and show their number.
export class TokenTexts {
  #engine;
  #known = new Map();
  constructor(engine) {
    this.#engine = engine;
  }
  async of(ids) {
    for (const id of new Set(ids)) {
      if (!this.#known.has(id)) this.#known.set(id, (await this.#engine.detokenize([id])) || `⟨${id}⟩`);
    }
    return ids.map((id) => this.#known.get(id));
  }
}

// A text's token as people see it: blanks and ends of lines, too.
export const visible = (text) => text.replace(/\n/g, "⏎").replace(/^ | $/g, "␣") || "∅";

// Fills a choice with [value, text].
export function fill(select, entries, chosen) {
  select.replaceChildren(...entries.map(([value, text]) => make("option", { value, selected: value === chosen }, text)));
}

// Buttons one of which Tab reaches, and arrow keys the others. Of a group that is filled anew, too.
export function rove(group, selector, onArrow = () => {}) {
  group.addEventListener("keydown", (event) => {
    const all = [...group.querySelectorAll(selector)], at = all.indexOf(event.target);
    const to = { ArrowLeft: at - 1, ArrowUp: at - 1, ArrowRight: at + 1, ArrowDown: at + 1, Home: 0, End: all.length - 1 }[event.key];
    if (at < 0 || to === undefined) return;
    event.preventDefault();
    const next = all[(to + all.length) % all.length];
    all.forEach((one) => { one.tabIndex = one === next ? 0 : -1; });
    next.focus();
    onArrow(next);
  });
}
