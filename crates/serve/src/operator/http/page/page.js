// Asks the gateway every second, and shows what it says. Texts of the gateway become text nodes, never markup.

const PERIOD = 1000;
// An I/O that has been on a path for longer makes the path stalled, whatever its state still is.
const STALLED_NS = 0.5e9;
const HISTORY_S = 600;
const $ = id => document.getElementById(id);

function make(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value !== null && value !== undefined) element.setAttribute(name, value);
  }
  element.append(...children.filter(child => child !== null && child !== undefined));
  return element;
}

const SIGNS = { good: "✔", warn: "▲", bad: "✖", off: "◼" };
const sign = (kind, word) => make("span", { class: `sign ${kind}` }, `${SIGNS[kind]} ${word}`);

function bar(part, mark) {
  const fill = make("i");
  fill.style.width = `${Math.max(0, Math.min(1, part)) * 100}%`;
  const box = make("span", { class: "bar", "aria-hidden": "true" }, fill);
  if (mark !== undefined) {
    const line = make("b");
    line.style.left = `${mark * 100}%`;
    box.append(line);
  }
  return box;
}

const number = value => value === null ? "–" : value >= 100000 ? `${(value / 1000).toFixed(0)}k` : value >= 10000 ? `${(value / 1000).toFixed(1)}k`
  : value >= 10 || Number.isInteger(value) ? value.toFixed(0) : value.toFixed(1);

function time(ns) {
  if (ns === null || ns === undefined) return "–";
  for (const [unit, size, next] of [["ns", 1, 1e3], ["µs", 1e3, 1e6], ["ms", 1e6, 1e9], ["s", 1e9, 12e10], ["min", 6e10, 72e11], ["h", 36e11, 1728e11]]) {
    if (ns < next) return `${ns / size < 10 && unit !== "ns" ? (ns / size).toFixed(1) : Math.round(ns / size)}\u00a0${unit}`;
  }
  return `${Math.round(ns / 864e11)}\u00a0d`;
}

function bytes(count) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
  let index = 0;
  while (count >= 1024 && index < 5) { count /= 1024; index += 1; }
  return `${count < 10 && index > 0 ? count.toFixed(1) : Math.round(count)}\u00a0${units[index]}`;
}

// Fills a section with a table. A column is [title, class]; a row is [name for the filter, cells].
function table(id, title, note, columns, rows, empty) {
  const section = $(id);
  const held = section.contains(document.activeElement) ? document.activeElement : null;
  const active = held?.closest("[data-row]")?.dataset.row;
  const caption = make("caption", {}, title, note ? make("small", {}, `  ${note}`) : null);
  const head = make("tr", {}, ...columns.map(([name, kind]) => make("th", { scope: "col", class: kind }, name)));
  const wanted = $("filter").value.toLowerCase();
  const shown = rows.filter(([name]) => name.toLowerCase().includes(wanted));
  const body = shown.map(([name, cells]) => {
    const row = cells.map((cell, index) => make("td", { class: columns[index][1] }, ...(Array.isArray(cell) ? cell : [cell])));
    return make("tr", { tabindex: "0", "data-row": `${id} ${name}` }, ...row);
  });
  const parts = [make("table", {}, caption, make("thead", {}, head), make("tbody", {}, ...body))];
  if (shown.length === 0) parts.push(make("p", { class: "empty" }, rows.length === 0 ? empty : "The filter hides all rows."));
  section.replaceChildren(...parts);
  if (active) {
    const row = [...section.querySelectorAll("tbody tr")].find(row => row.dataset.row === active);
    (held.tagName === "BUTTON" ? row?.querySelector("button") ?? row : row)?.focus({ preventScroll: true });
  }
}

const left = count => count > 0 ? `${count} more are not shown` : "";

// The response time of a share of the requests since the last totals.
function quantile(now, before, share) {
  const earlier = new Map((before?.response_times ?? []).map(bucket => [bucket.up_to_ns, bucket.requests]));
  const all = now.response_count - (before?.response_count ?? 0);
  if (all <= 0) return null;
  for (const { up_to_ns, requests } of now.response_times) {
    if (requests - (earlier.get(up_to_ns) ?? 0) >= all * share) return up_to_ns;
  }
  return 17e9;
}

function alarms(status, list) {
  const found = [];
  if (status.gateway.stopping) found.push(["bad", "The gateway is stopping: it takes no new work."]);
  for (const volume of status.volumes) {
    if (volume.lost) found.push(["bad", `Volume ${volume.name} is lost: a flush has failed.`]);
    for (const fence of volume.fences.filter(one => one.state !== "held")) {
      found.push(["bad", `Volume ${volume.name}: upstream ${fence.upstream} is ${fence.state} for ${time(fence.age_ns)}. ${fence.why}`]);
    }
    if (volume.log && volume.log.storage !== "up") {
      found.push(["bad", `Write-back of ${volume.name}: storage is ${volume.log.storage} for ${time(volume.log.storage_ns)}. ${volume.log.storage_why}`]);
    }
    if (volume.log && volume.log.waiting > 0) found.push(["warn", `Write-back of ${volume.name}: ${volume.log.waiting} writes wait for room in the log.`]);
  }
  for (const path of status.paths_out) {
    found.push(["warn", `Path ${path.path} of ${path.backend} is ${path.state} for ${time(path.since_ns)}: ${path.why}`]);
  }
  for (const path of list) {
    const [, state, why] = judged(path);
    if (state === "stalled") found.push(["warn", `Path ${path.path} of ${path.backend} is stalled: ${why}`]);
  }
  for (const tenant of status.tenants) {
    const burn = Math.max(0, ...tenant.targets.map(target => target.burn_5min));
    if (burn > 1) found.push(["warn", `${tenant.name} misses its objective: ${burn.toFixed(1)} times the allowed misses in 5 min, mostly ${tenant.causes[0]?.rule ?? "of no single rule"}.`]);
  }
  if (status.overdue.length > 0) found.push(["warn", `Overdue requests: ${status.overdue.length + status.overdue_left_out}; the oldest for ${time(status.overdue[0].age_ns)}.`]);
  const items = found.map(([kind, text]) => make("li", { class: kind }, make("strong", { class: kind }, SIGNS[kind]), ` ${text}`));
  // Announced only when they change.
  const said = items.map(item => item.textContent.replace(/ for [^:]*/g, "")).join("\n");
  if (said !== alarms.said) $("alarms").replaceChildren(...items);
  alarms.said = said;
  return found;
}

function objectives(status) {
  const rows = status.tenants.flatMap(tenant => tenant.targets.map(target => {
    const met = target.burn_1h <= 1;
    const row = `${target.direction} ${bytes(target.size)}${target.load === null ? "" : `, load to ${target.load}`}`;
    const scale = Math.max(target.measured_ns ?? 0, target.target_ns * 1.25) || 1;
    return [tenant.name, [
      [tenant.name, make("small", {}, row)],
      `p${+(target.quantile * 100).toFixed(2)} ${time(target.target_ns)}`,
      [time(target.measured_ns), bar((target.measured_ns ?? 0) / scale, target.target_ns / scale)],
      `${target.burn_1h.toFixed(1)}x`,
      sign(met ? "good" : "bad", met ? "met" : "missed"),
    ]];
  }));
  table("objectives", "Objectives", left(status.tenants_left_out),
    [["tenant", ""], ["objective", ""], ["now", "gauge"], ["burn 1 h", "number"], ["state", ""]], rows, "No tenant with an objective has had requests.");
}

function causes(now, before) {
  const earlier = new Map((before?.rules ?? []).map(rule => [rule.rule, rule]));
  const rules = now.rules.map(rule => ({ ...rule, spent: rule.time_ns - (earlier.get(rule.rule)?.time_ns ?? 0) })).filter(rule => rule.spent > 0);
  const all = rules.reduce((sum, rule) => sum + rule.spent, 0);
  const requests = now.response_count - (before?.response_count ?? 0);
  rules.sort((one, other) => other.spent - one.spent);
  table("causes", "Time by cause", before ? `last ${PERIOD / 1000} s` : "since the start",
    [["rule", ""], ["share", ""], ["part", "number"], ["per request", "number"]],
    rules.slice(0, 8).map(rule => [rule.rule, [rule.rule, bar(rule.spent / all), `${(rule.spent / all * 100).toFixed(0)} %`, requests > 0 ? time(rule.spent / requests) : "–"]]),
    "No request has ended.");
}

function volumes(status, now, before, seconds) {
  const earlier = new Map((before?.volumes ?? []).map(volume => [volume.name, volume]));
  const rates = new Map(now.volumes.map(volume => {
    const old = earlier.get(volume.name);
    const rate = key => (volume[key] - (old?.[key] ?? 0)) / seconds;
    const requests = rate("reads") + rate("writes");
    return [volume.name, { iops: requests, megabytes: (rate("read_bytes") + rate("written_bytes")) / 1e6, mean: requests > 0 ? rate("time_ns") / requests : null, errors: volume.errors }];
  }));
  // Without an earlier answer there are no rates.
  const rated = value => before ? value : null;
  const none = { iops: 0, megabytes: 0, mean: null, errors: 0 };
  const rows = status.volumes.map(volume => {
    const rate = rates.get(volume.name) ?? none;
    const fenced = volume.fences.some(fence => fence.state !== "held");
    const state = volume.lost ? sign("bad", "lost") : fenced ? sign("bad", "fenced") : volume.read_only ? sign("off", "read only") : sign("good", "serving");
    return [rated(rate.iops) ?? 0, [volume.name, [[volume.name, make("small", {}, bytes(volume.bytes))], number(rated(rate.iops)), number(rated(rate.megabytes)), time(rated(rate.mean)), number(rate.errors), state]]];
  });
  rows.sort((one, other) => other[0] - one[0]);
  table("volumes", "Volumes", left(rows.length - 50),
    [["name", ""], ["IOPS", "number"], ["MB/s", "number"], ["mean", "number"], ["errors", "number wide"], ["state", ""]], rows.slice(0, 50).map(([, row]) => row), "There are no volumes.");
  const sum = key => rated([...rates.values()].reduce((all, rate) => all + rate[key], 0));
  return { iops: sum("iops"), megabytes: sum("megabytes") };
}

// A button for an order, for who has given a token. It asks once, says what follows, and shows the answer.
function order(word, path, title, consequence) {
  if (!token) return null;
  const button = make("button", { type: "button", "aria-label": title }, word);
  button.addEventListener("click", () => {
    $("order-title").textContent = `${title}?`;
    $("consequence").textContent = consequence;
    ordered = { path, title };
    $("confirm").showModal();
  });
  return button;
}

let ordered = null;

async function give({ path, title }) {
  let told;
  try {
    const headers = { Authorization: `Bearer ${token}`, "Content-Type": "application/json" };
    const answer = await fetch(path, { method: "POST", signal: AbortSignal.timeout(30000), cache: "no-store", headers, body: "{}" });
    const problem = answer.ok ? null : await answer.json();
    told = problem ? `${title}: ${problem.detail}; ${problem.help}.` : `${title}: done.`;
  } catch {
    told = `${title}: no answer; look at the state before you try again.`;
  }
  $("told").textContent = told;
  look();
}

// A path whose first I/O does not end is stalled before its state says so.
function judged(path) {
  const kind = PATH_KINDS[path.state] ?? "warn";
  if (kind === "good" && path.in_flight > 0 && path.oldest_ns > STALLED_NS) {
    return ["warn", "stalled", `${path.in_flight} in flight; the first is not answered for ${time(path.oldest_ns)}`];
  }
  return [kind, path.state, kind === "good" ? "" : path.why];
}

const PATH_KINDS = { active: "good", standby: "off", disabled: "off" };

function paths(list) {
  const rows = list.slice(0, 64).map(path => {
    const [kind, state, why] = judged(path);
    const at = `/api/v1/backends/${path.backend}/paths/${path.path}`;
    const name = `path ${path.path} of ${path.backend}`;
    return [`${path.backend} ${path.path}`, [
      [`${path.backend} ${path.path}`, make("small", {}, path.portal)],
      [sign(kind, state), why ? make("small", {}, why) : null, path.state === "disabled"
        ? order("enable", `${at}:enable`, `Enable ${name}`, "It gets I/O again once the gateway has checked it.")
        : order("disable", `${at}:disable`, `Disable ${name}`, "It gets no I/O until it is enabled. The gateway refuses if no other path could be used.")],
      number(path.in_flight),
      path.learned ? time(path.learned.fixed_ns) : "–",
      time(path.since_ns),
    ]];
  });
  table("paths", "Paths", left(list.length - 64), [["path", ""], ["state", ""], ["in flight", "number"], ["learned", "number wide"], ["since", "number"]], rows, "There are no paths.");
}

function logs(status) {
  const rows = status.volumes.filter(volume => volume.log).map(({ name, log }) => [name, [
    [name, make("small", {}, log.phase), log.phase === "through"
      ? order("resume", `/api/v1/volumes/${name}:resume`, `Resume the log of ${name}`, "New writes go to the log again.")
      : order("drain", `/api/v1/volumes/${name}:drain`, `Drain the log of ${name}`, "All its data goes to the storage, and new writes go there directly, until it is resumed.")],
    [bar(log.fill), make("small", {}, `${(log.fill * 100).toFixed(0)} % full`)],
    bytes(log.dirty_bytes),
    log.dirty_bytes > 0 ? time(log.oldest_dirty_ns) : "–",
    log.dirty_bytes > 0 && log.eta_ns !== null ? time(log.eta_ns) : "–",
    [sign(log.storage === "up" ? "good" : "bad", log.storage), log.storage === "up" ? null : make("small", {}, log.storage_why)],
  ]]);
  if (rows.length === 0) return $("logs").replaceChildren();
  table("logs", "Write-back", "", [["volume", ""], ["log", ""], ["dirty", "number"], ["oldest", "number"], ["done in", "number wide"], ["storage", ""]], rows, "");
}

function overdue(status) {
  if (status.overdue.length === 0) return $("overdue").replaceChildren();
  const rows = status.overdue.slice(0, 10).map(one => [one.volume, [
    time(one.age_ns), one.stage, [`${one.op} ${bytes(one.length)} at ${bytes(one.offset)}`, make("small", {}, `${one.tenant} / ${one.volume}`)],
  ]]);
  table("overdue", "Overdue requests", left(status.overdue.length - 10 + status.overdue_left_out), [["for", ""], ["stage", ""], ["request", ""]], rows, "");
}

// The slowest requests of the last minute: where each was held for longest, and who was served meanwhile.
function slowest(slow) {
  if (!slow) return $("slow").replaceChildren();
  const percent = (part, all) => `${(part / all * 100).toFixed(0)} %`;
  const behind = wait => wait.behind.slice(0, 3).map(one => `${one.who} ${percent(one.time_ns, wait.time_ns)}`).join(", ");
  const rows = slow.told.slice(0, 10).map(one => {
    const waits = [...one.waits].sort((a, b) => b.time_ns - a.time_ns).filter(wait => wait.time_ns * 20 >= one.response_ns);
    const held = waits.slice(0, 3).flatMap(wait => [make("div", {}, `${wait.rule} ${time(wait.time_ns)}`), wait.behind.length > 0 ? make("small", {}, `behind ${behind(wait)}`) : null]);
    const most = one.mostly ? `mostly ${one.mostly.who}: ${percent(one.mostly.time_ns, one.response_ns)}` : "not attributed";
    const kind = one.reason === "" ? null : sign(one.reason === "slow" ? "warn" : "bad", one.reason);
    return [`${one.tenant} ${one.volume} ${one.id}`, [
      [time(one.response_ns), kind, make("small", {}, `${time(one.age_ns)} ago`)],
      [`${one.op} ${bytes(one.length)} of ${one.volume}`, make("small", {}, one.tenant), make("small", {}, one.id)],
      [...held, make("small", {}, most)],
    ]];
  });
  const note = `of ${slow.requests} in the last ${time(slow.within_ns)}; ${slow.late} late, ${slow.failed} failed, ${slow.slow} of ${time(slow.slow_ns)} or more`;
  table("slow", "Slowest requests", note, [["took", ""], ["request", ""], ["held by", ""]], rows, `No request has ended in the last ${time(slow.within_ns)}.`);
}

function sessions(status) {
  const rows = status.sessions.slice(0, 20).map(one => [`${one.initiator ?? ""} ${one.peer} ${one.target ?? ""}`, [
    [one.initiator ?? one.peer, make("small", {}, `${one.protocol}, ${one.peer}`)], one.target ?? "discovery", number(one.outstanding),
  ]]);
  table("sessions", "Sessions", left(status.sessions.length - rows.length + status.sessions_left_out), [["host", ""], ["target", ""], ["outstanding", "number"]], rows, "No host is connected.");
}

// The last ten minutes: points of two seconds, made by the gateway.
let history = null;
let asked = -Infinity;

const SVG = new DOMParser().parseFromString("<svg></svg>", "text/html").querySelector("svg").namespaceURI;
function draw(tag, attributes, ...children) {
  const element = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children);
  return element;
}

// A chart of lines or of a stack over the last ten minutes, with its greatest value at the left and a legend that says
// the last one. `series` are [name, class, values]; a value that is null is a gap.
function chart(title, unit, series, stacked) {
  const { now_ns, points } = history;
  const width = 600, height = 110;
  const x = index => width * (1 - (now_ns - points[index].at_ns) / (HISTORY_S * 1e9));
  const sums = points.map((_, index) => stacked ? series.reduce((all, [, , values]) => all + (values[index] ?? 0), 0) : Math.max(0, ...series.map(([, , values]) => values[index] ?? 0)));
  const top = Math.max(...sums, 0) || 1;
  const y = value => height * (1 - value / (top * 1.05));
  const picture = draw("svg", { viewBox: `0 0 ${width} ${height}`, preserveAspectRatio: "none", role: "img", "aria-label": `${title} in the last ten minutes, at most ${unit(top)}` });
  for (const part of [0.5, 1]) picture.append(draw("line", { class: "grid", x1: 0, x2: width, y1: y(top * part), y2: y(top * part) }));
  let floor = points.map(() => 0);
  for (const [, kind, values] of series) {
    if (stacked) {
      const upper = floor.map((low, index) => low + (values[index] ?? 0));
      const line = side => side.map((value, index) => `${x(index).toFixed(1)},${y(value).toFixed(1)}`);
      picture.append(draw("polygon", { class: `area ${kind}`, points: [...line(upper), ...line(floor).reverse()].join(" ") }));
      floor = upper;
    } else {
      let path = "";
      values.forEach((value, index) => {
        if (value !== null) path += `${index === 0 || values[index - 1] === null ? "M" : "L"}${x(index).toFixed(1)} ${y(value).toFixed(1)}`;
      });
      picture.append(draw("path", { class: `line ${kind}`, d: path }));
    }
  }
  const legend = series.map(([name, kind, values]) => make("li", {}, make("span", { class: `key ${kind}`, "aria-hidden": "true" }), `${name} ${values.length > 0 && values.at(-1) !== null ? unit(values.at(-1)) : "–"}`));
  return make("figure", {}, make("figcaption", {}, title, make("small", {}, `  at most ${unit(top)}`)), picture, make("ul", { class: "legend" }, ...legend));
}

function charts() {
  const { points, stages } = history;
  const of = key => points.map(point => point[key]);
  const stack = stages.map((name, index) => [name, `stage${index}`, points.map(point => point.stages_ns[index])]).filter(([, , values]) => values.some(value => value > 0));
  const parts = points.length === 0 ? [make("p", { class: "empty" }, "The first point comes in two seconds.")] : [
    chart("Requests a second", number, [["IOPS", "line0", of("requests")]], false),
    chart("Response time", time, [["p99", "line1", of("p99_ns")], ["p50", "line0", of("p50_ns")]], false),
    chart("Time by stage, for each request", time, stack, true),
  ];
  $("history").replaceChildren(make("h2", {}, "Last ten minutes"), make("div", { class: "charts" }, ...parts));
}

function numbers(status, sums, p50, p99) {
  const { gateway, requests } = status;
  const shown = [["IOPS", number(sums.iops)], ["MB/s", number(sums.megabytes)], ["p50", time(p50)], ["p99", time(p99)],
    ["outstanding", number(requests.outstanding)], ["thread", `${(gateway.busy * 100).toFixed(0)} %`], ["limit", gateway.bottleneck || "none"], ["up", time(gateway.up_ns)]];
  $("numbers").replaceChildren(...shown.map(([name, value]) => make("div", {}, make("dt", {}, name), make("dd", {}, value))));
  $("release").textContent = gateway.release;
}

function state(kind, word) {
  $("state").replaceChildren(sign(kind, word));
  document.body.classList.toggle("stale", word.startsWith("stale"));
}

let last = null;
let heard = null;

// In the memory of this page alone.
let token = "";

class Refused extends Error {}

const get = async path => {
  const headers = token ? { Authorization: `Bearer ${token}` } : {};
  const answer = await fetch(path, { signal: AbortSignal.timeout(5000), cache: "no-store", headers });
  if (answer.status === 401) throw new Refused((await answer.json()).detail);
  if (!answer.ok) throw new Error(`${path}: ${answer.status}`);
  return answer.json();
};

let refused = false;

// Asks for a token, once for each time that the gateway wants one.
function ask(why) {
  $("why").textContent = why;
  if (!$("sign-in").open) $("sign-in").showModal();
}

let looking = false;

async function look() {
  if (document.hidden || looking || (refused && $("sign-in").open)) return;
  looking = true;
  try {
    const [status, list, totals] = await Promise.all(["status", "paths", "totals"].map(name => get(`/api/v1/${name}`)));
    const at = performance.now();
    // A gateway that was restarted counts from zero again.
    const before = last && last.up <= status.gateway.up_ns ? last : null;
    const seconds = before ? (at - before.at) / 1000 : 0;
    const found = alarms(status, list.paths);
    objectives(status);
    causes(totals, before?.totals);
    const sums = volumes(status, totals, before?.totals, seconds);
    paths(list.paths);
    logs(status);
    overdue(status);
    sessions(status);
    if (at - asked > 2000) {
      history = await get("/api/v1/history");
      charts();
      slowest(status.recorder ? await get("/api/v1/slow") : null);
      asked = at;
    }
    numbers(status, sums, quantile(totals, before?.totals, 0.5), quantile(totals, before?.totals, 0.99));
    state(status.gateway.stopping ? "off" : found.length > 0 ? "warn" : "good", status.gateway.stopping ? "stopping" : found.length > 0 ? "degraded" : "serving");
    last = { at, totals, up: status.gateway.up_ns };
    heard = new Date();
    refused = false;
  } catch (error) {
    if (error instanceof Refused && !refused) ask(error.message);
    refused = error instanceof Refused;
    state("bad", refused ? "not signed in" : heard ? `stale since ${heard.toLocaleTimeString()}` : "no answer");
  } finally {
    looking = false;
  }
}

function move(step) {
  const rows = [...document.querySelectorAll("tbody tr")];
  const at = rows.indexOf(document.activeElement);
  rows[at < 0 ? 0 : Math.max(0, Math.min(rows.length - 1, at + step))]?.focus();
}

document.addEventListener("keydown", event => {
  if (event.ctrlKey || event.metaKey || event.altKey || $("help").open || $("sign-in").open || $("confirm").open) return;
  if (event.target === $("filter")) {
    if (event.key === "Escape") { $("filter").value = ""; $("filter").blur(); look(); }
    return;
  }
  const does = { j: () => move(1), k: () => move(-1), "/": () => $("filter").focus(), "?": () => $("help").showModal() }[event.key];
  if (does) { event.preventDefault(); does(); }
});
$("key").addEventListener("click", () => ask(token ? "A token is in use." : "Without a token the page shows what everybody may see."));
$("sign-in").addEventListener("close", () => {
  if ($("sign-in").returnValue !== "use") return;
  token = $("token").value.trim();
  $("token").value = "";
  $("sign-in").returnValue = "";
  refused = false;
  look();
});
$("confirm").addEventListener("close", () => {
  if ($("confirm").returnValue === "do") give(ordered);
  $("confirm").returnValue = "";
});
$("keys").addEventListener("click", () => $("help").showModal());
$("filter").addEventListener("input", look);
document.addEventListener("visibilitychange", look);
setInterval(look, PERIOD);
look();
