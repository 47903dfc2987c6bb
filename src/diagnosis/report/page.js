// The page: a section for each part of the data, in reading order.

function facts() {
  const entries = [["Model", data.model], ["Reference", data.reference], ["Made by", data.producer], ["Backend", data.backend],
    ["Prompt", `${data.tokens} tokens`], ["Layers", data.layers], ["Stages", data.stages.length]];
  if (data.decode.steps > 0) entries.push(["Chosen tokens equal", `${data.decode.top1_equal} of ${data.decode.steps}`]);
  $("#facts").append(...entries.filter(([, value]) => value !== null && value !== undefined && value !== "")
    .map(([name, value]) => make("div", {}, make("dt", {}, name), make("dd", {}, value))));
  $("#more").append(...(data.more ?? []).map((sentence) => make("p", {}, sentence)));
}

function findings() {
  if (!data.findings?.length) return;
  $("#findings").hidden = false;
  $("#findings .body").append(...data.findings.map((finding) => make("div", { class: "finding" },
    make("h3", {}, [finding.cause, finding.stage && `at ${finding.stage}`, finding.layer !== null && finding.layer !== undefined && `of layer ${finding.layer}`]
      .filter(Boolean).join(" ")),
    make("p", {}, finding.explanation ?? ""),
    ...(finding.repair ? [make("p", {}, make("strong", {}, "Repair: "), finding.repair)] : []),
    ...(typeof finding.confidence === "number" ? [make("p", { class: "hint" }, `Confidence ${Math.round(finding.confidence * 100)}%`)] : []))));
}

function rowsOf(table, heads, rows) {
  table.append(make("thead", {}, make("tr", {}, ...heads.map(([head, numeric]) => make("th", { scope: "col", class: numeric ? "number" : null }, head)))),
    make("tbody", {}, ...rows.map(([look, ...cells]) => make("tr", { class: look || null },
      ...cells.map((content, i) => make("td", { class: heads[i][1] ? "number" : null }, content))))));
}

function values() {
  if (!data.values?.length) return;
  $("#values").hidden = false;
  $("#values .hint").textContent = data.values_of;
  const named = data.pieces?.length > 0;
  rowsOf($("#values table"), [["token", true], ...(named ? [["piece"]] : []), ["index", true], ["expected", true], ["found", true], ["difference", true]],
    data.values.map((v) => ["", v.token, ...(named ? [data.pieces[v.token] ?? ""] : []), v.index, number(v.expected), number(v.found),
      v.found === null || v.expected === null ? "NaN" : number(v.found - v.expected)]));
}

function everyStage() {
  const bad = data.stages.filter((stage) => !stage.agrees).length;
  $("#all summary").textContent = `${data.stages.length} stages, ${bad === 0 ? "all agree" : `${bad} differ`}`;
  const details = $("#all details");
  details.addEventListener("toggle", () => {
    if ($("#all thead")) return;
    const split = data.stages.some((stage) => ratioIn(stage, "alone") !== undefined);
    rowsOf($("#all table"), [["stage"], ["", false], ["error", true], ["allowed", true], ["share", true],
      ...(split ? [["op alone", true], ["inherited", true]] : []), ["largest", true], ["worst token", true]],
      data.stages.map((s) => [s.agrees ? "" : "bad", s.key, s.agrees ? "✓" : "✗", s.computed ? error(s.error) : "not computed", error(s.tolerance),
        s.computed ? times(ratioOf(s)) : "", ...(split ? [ratioIn(s, "alone") === undefined ? "" : times(ratioIn(s, "alone")), s.inherited === undefined ? "" : error(s.inherited)] : []),
        number(s.largest), s.worst_token]));
  });
}

facts();
findings();
if (data.stages.length > 0) {
  drawLegend();
  drawViews();
  drawMap();
  drawTokens();
} else {
  $("#map").hidden = true;
}
drawDepth();
drawMagnitudes();
drawHistogram();
values();
everyStage();
for (const box of document.querySelectorAll(".scroll")) {
  if (!box.querySelector("[tabindex]")) box.tabIndex = 0;  // so that the keyboard can scroll it
}
