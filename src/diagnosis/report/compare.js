// The comparison's page: a section for each part of the data, in reading order.

function values() {
  if (!data.values?.length) return;
  $("#values").hidden = false;
  $("#values .hint").textContent = data.values_of;
  const named = data.pieces?.length > 0;
  const [truth, result] = data.value_names;
  rowsOf($("#values table"), [["token", true], ...(named ? [["piece"]] : []), ["index", true], [truth, true], [result, true], ["difference", true]],
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

findings();
if (data.looked) {
  $("#findings").hidden = false;
  $("#findings .hint").textContent = data.looked;
}
if (data.stages.length > 0) {
  drawLegend($("#map .legend"), [["absent", "?", "not computed"],
    ...(data.stages.some((stage) => stage.untold) ? [["untold", "", "cannot be told"]] : [])]);
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
finish();
