// Tabs: one panel is shown at a time; arrow keys go from tab to tab.
import { rove } from "./page_parts.js";

const tabs = [...document.querySelectorAll("[role=tab]")];
const panelOf = (tab) => document.getElementById(tab.getAttribute("aria-controls"));

export function showTab(chosen) {
  for (const tab of tabs) {
    const on = tab === chosen;
    tab.setAttribute("aria-selected", on);
    tab.tabIndex = on ? 0 : -1;
    panelOf(tab).hidden = !on;
  }
}

// `open`: whether there is a model to do something with.
export function showTabs(open) {
  $("#tabs").hidden = !open;
  if (open) showTab(tabs.find((tab) => tab.getAttribute("aria-selected") === "true"));
  else tabs.forEach((tab) => { panelOf(tab).hidden = true; });
}

for (const tab of tabs) tab.addEventListener("click", () => showTab(tab));
rove($("#tabs"), "[role=tab]", showTab);
