// The page: asks for values and makes elements of them. Text becomes text nodes only; markup that a
// name or a message contains is shown as it is written.
"use strict";

const TOKEN = "deferred-quota.token";
const SECONDS = 10;
const SVG = "http://www.w3.org/2000/svg";
const PARTS = ["used", "elsewhere", "reserved", "pending"];
const WORDS = {
  used: "used", elsewhere: "used by other namespaces", reserved: "reserved", pending: "pending beyond that",
};

const main = document.getElementById("main");
const status = document.getElementById("status");
const form = document.getElementById("sign-in");
const signOut = document.getElementById("sign-out");
const userName = document.getElementById("user");

let shown = "";
let round = 0;

// Control characters, and those that change the direction of what follows, are written out.
const HIDDEN = /[\u0000-\u001f\u007f-\u009f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]/g;

function visible(value) {
  return String(value).replace(
    HIDDEN, (found) => "\\u" + found.charCodeAt(0).toString(16).padStart(4, "0"));
}

function fill(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value !== null) node.setAttribute(name, value);
  }
  for (const child of children.flat()) {
    node.append(child instanceof Node ? child : document.createTextNode(visible(child)));
  }
  return node;
}

function el(name, attributes = {}, ...children) {
  return fill(document.createElement(name), attributes, children);
}

function svg(name, attributes = {}, ...children) {
  return fill(document.createElementNS(SVG, name), attributes, children);
}

function table(caption, heads, rows) {
  const head = heads.map(([text, kind]) => el("th", {scope: "col", class: kind || null}, text));
  const body = rows.map((cells) => el("tr", {}, cells.map((cell, number) =>
    el("td", {class: heads[number][1] || null}, cell))));
  return el("div", {class: "scroll"}, el("table", {},
    el("caption", {}, caption), el("thead", {}, el("tr", {}, head)), el("tbody", {}, body)));
}

function percent(permille) {
  return Math.floor(permille / 10) + " %";
}

function bar(parts, text) {
  const picture = svg("svg", {
    class: "bar", role: "img", "aria-label": visible(text), viewBox: "0 0 1000 20",
    preserveAspectRatio: "none",
  }, svg("rect", {class: "ground", width: "1000", height: "20"}));
  let left = 0;
  for (const name of PARTS) {
    const width = Math.max(0, Math.min(parts[name] || 0, 1000 - left));
    if (width) picture.append(svg("rect", {class: name, x: left, width, height: "20"}));
    left += width;
  }
  const at = Math.min(999, Math.max(1, parts.hard));
  picture.append(svg("path", {class: "hard", d: `M${at} 0V20`}));
  return picture;
}

function legend() {
  return el("ul", {class: "legend", "aria-label": "Colours of the bars"}, PARTS.map((name) =>
    el("li", {}, svg("svg", {viewBox: "0 0 10 10", "aria-hidden": "true"},
      svg("rect", {class: name, width: "10", height: "10"})), WORDS[name])));
}

function chart(series) {
  const span = series.windowSeconds;
  const line = (place) => {
    let path = "";
    for (const point of series.points) {
      const x = ((span - point[0]) * 1000 / span).toFixed(1);
      const y = 100 - point[place] / 10;
      path += path ? `H${x}V${y}` : `M${x} ${y}`;
    }
    return path + "H1000";
  };
  const from = ((span - series.points[0][0]) * 1000 / span).toFixed(1);
  const area = (place) => `${line(place)}V100H${from}Z`;
  const text = `${series.quota} ${series.resource}: now ${series.last}, in the last hour ` +
    `${series.least} to ${series.most}`;
  return el("figure", {},
    svg("svg", {
      class: "chart", role: "img", "aria-label": visible(text), viewBox: "0 0 1000 100",
      preserveAspectRatio: "none",
    },
    svg("path", {class: "reserved", d: area(2)}), svg("path", {class: "used", d: area(1)}),
    svg("path", {class: "hard", d: line(3)})),
    el("figcaption", {}, text));
}

function link(hash, text, id) {
  return el("a", {href: hash, id: id || null}, text);
}

function namespacePath(name) {
  return "#/namespaces/" + encodeURIComponent(name);
}

function podPath(namespace, name) {
  return namespacePath(namespace) + "/pods/" + encodeURIComponent(name);
}

function amounts(values) {
  return Object.entries(values).map(([name, value]) => `${name} ${value}`).join(", ");
}

function listView(values) {
  const rows = values.namespaces.map((one) => {
    const full = one.fullest;
    const text = full ? `${percent(full.permille)} of ${full.resource}, quota ${full.quota}` : "";
    return [link(namespacePath(one.name), one.name, "to-" + one.name), String(one.quotas),
      String(one.queued),
      full ? bar({used: Math.min(1000, full.permille), hard: 1000}, text) : "", text];
  });
  const heading = el("h1", {tabindex: "-1"}, "Namespaces");
  if (!rows.length) {
    return [heading, el("p", {}, "No namespace that defers its quotas is shown to you. One is " +
      "shown if you may list its resourcequotas and its pods.")];
  }
  return [heading, table("Namespaces that defer their quotas",
    [["Namespace"], ["Quotas", "number"], ["Pods waiting", "number"], ["Fullest", "bar"], [""]],
    rows)];
}

function quotaTable(quota) {
  const rows = quota.resources.map((one) => [one.resource, one.used, one.elsewhere, one.reserved,
    one.pending, one.hard, bar(one.bar, `${one.resource}: used ${one.used}, used by other ` +
      `namespaces ${one.elsewhere}, reserved ${one.reserved}, pending ${one.pending}, ` +
      `hard ${one.hard}`)]);
  return table(`${quota.kind} ${quota.name}`,
    [["Resource"], ["Used", "number"], ["Elsewhere", "number"], ["Reserved", "number"],
      ["Pending", "number"], ["Hard", "number"], ["Bar", "bar"]], rows);
}

function namespaceView(values) {
  const parts = [
    el("p", {}, link("#/", "All namespaces", "to-all")),
    el("h1", {tabindex: "-1"}, "Namespace ", values.name),
    el("p", {class: "quiet"}, "As of ", values.asOf),
  ];
  if (values.undecided) {
    parts.push(el("p", {class: "notice"}, "Nothing is admitted now: ", values.undecided));
  }
  for (const one of values.conditions) {
    parts.push(el("p", {class: "notice"}, `${one.type}, ${one.reason}: ${one.message}`));
  }
  parts.push(el("h2", {}, "Quotas"));
  if (values.quotas.length) parts.push(legend(), values.quotas.map(quotaTable));
  else parts.push(el("p", {}, "No quota limits a deferred resource."));
  parts.push(el("h2", {}, "Queue"));
  const pods = values.queue.pods;
  if (pods.length) {
    parts.push(table(`Pods that wait for quota: ${values.queue.total}` +
      (values.queue.total > pods.length ? `, the first ${pods.length}` : ""),
    [["Place", "number"], ["Pod"], ["Priority", "number"], ["Reason"], ["Message"]],
    pods.map((one) => [one.place || "–", link(podPath(values.name, one.pod), one.pod,
      "pod-" + one.pod), String(one.priority), one.reason, one.message])));
  } else parts.push(el("p", {}, "No pod waits for quota."));
  parts.push(el("h2", {}, "Consumers"));
  if (values.consumers.length) {
    parts.push(table("Pods that take most", [["Pod"], ["State"], ["Amounts"]],
      values.consumers.map((one) => [link(podPath(values.name, one.pod), one.pod,
        "consumer-" + one.pod), one.state, amounts(one.amounts)])));
  } else parts.push(el("p", {}, "No pod takes of these quotas."));
  parts.push(el("h2", {}, "Last hour"));
  if (values.history.length) {
    parts.push(el("div", {class: "charts"}, values.history.map(chart)));
  } else parts.push(el("p", {}, "Nothing was recorded yet."));
  return parts.flat();
}

function podView(values) {
  const parts = [
    el("p", {}, link(namespacePath(values.namespace), "Namespace " + values.namespace, "to-ns")),
    el("h1", {tabindex: "-1"}, "Pod ", values.name),
    el("p", {}, el("strong", {}, values.text)),
  ];
  if (values.causes.length > 1) {
    parts.push(el("h2", {}, "Causes"), el("ol", {}, values.causes.map((one) =>
      el("li", {}, one.cause, ": ", one.text))));
  }
  const numbers = values.causes.flatMap((cause) => (cause.resources || []).map((one) =>
    [cause.quota || "(a node)", one.resource, one.requested, one.used, one.reserved, one.hard,
      one.missing]));
  if (numbers.length) {
    parts.push(table("Numbers", [["Quota"], ["Resource"], ["Requested", "number"],
      ["Used", "number"], ["Reserved", "number"], ["Hard", "number"], ["Missing", "number"]],
    numbers));
  }
  if (values.who.length) {
    parts.push(table("Consumers", [["Namespace"], ["Pod"], ["State"], ["Amounts"]],
      values.who.map((one) => [one.namespace, one.pod || "(all of it)", one.state,
        amounts(one.amounts)])));
  }
  if (values.nodes) {
    const why = Object.entries(values.nodes.reasons).map(([name, count]) => `${count} ${name}`);
    const best = values.nodes.best.map((one) => `${one.name} (${one.score})`);
    parts.push(el("h2", {}, "Nodes"), el("p", {}, `${values.nodes.fit} of ${values.nodes.total} ` +
      "nodes fit" + (why.length ? ": " + why.join(", ") : "") +
      (best.length ? "; best: " + best.join(", ") : "")));
  }
  if (values.unblock.length) {
    parts.push(el("h2", {}, "What would unblock it"), el("ul", {}, values.unblock.map((one) =>
      el("li", {}, one.action, ": ", one.text))));
  }
  for (const [title, texts] of [["Notes", values.notes], ["Not known", values.unknown]]) {
    if (texts.length) {
      parts.push(el("h2", {}, title), el("ul", {}, texts.map((text) => el("li", {}, text))));
    }
  }
  if (values.asOf) parts.push(el("p", {class: "quiet"}, "As of ", values.asOf));
  return parts;
}

function route() {
  const words = location.hash.replace(/^#\/?/, "").split("/");
  const safe = words.every((word) => word !== "." && word !== "..");
  if (safe && words[0] === "namespaces" && words.length === 2) {
    return {path: "api/namespaces/" + words[1], view: namespaceView, repeats: true};
  }
  if (safe && words[0] === "namespaces" && words[2] === "pods" && words.length === 4) {
    return {path: `api/namespaces/${words[1]}/pods/${words[3]}`, view: podView, repeats: false};
  }
  return {path: "api/namespaces", view: listView, repeats: true};
}

function show(parts) {
  const focused = document.activeElement && document.activeElement.id;
  main.replaceChildren(...parts);
  const again = focused && document.getElementById(focused);
  if (again && main.contains(again)) again.focus();
}

function askToken(message) {
  round++; // what is still on its way is not shown any more
  sessionStorage.removeItem(TOKEN);
  main.replaceChildren();
  shown = "";
  form.hidden = false;
  signOut.hidden = true;
  userName.textContent = "";
  status.textContent = message;
  document.getElementById("token").focus();
}

async function refresh(moves) {
  const token = sessionStorage.getItem(TOKEN);
  const own = ++round;
  if (!token) {
    askToken("");
    return;
  }
  form.hidden = true;
  signOut.hidden = false;
  const {path, view} = route();
  let answer;
  let values;
  try {
    answer = await fetch(path, {
      headers: {Authorization: "Bearer " + token}, cache: "no-store", credentials: "omit",
    });
    values = await answer.json();
  } catch (error) {
    if (own === round) status.textContent = "The controller does not answer.";
    return;
  }
  if (own !== round) return; // another view was chosen meanwhile
  if (answer.status === 401) {
    askToken("The token is not known, or not any more.");
    return;
  }
  if (!answer.ok) {
    status.textContent = visible(values.message || "The controller does not answer.");
    if (moves) main.replaceChildren(el("p", {}, link("#/", "All namespaces", "to-all")));
    shown = "";
    return;
  }
  status.textContent = "";
  if (values.user) userName.textContent = visible(values.user);
  const text = path + JSON.stringify(values);
  if (text !== shown) show(view(values));
  shown = text;
  if (moves) {
    const heading = main.querySelector("h1");
    document.title = heading.textContent + " – deferred-quota";
    heading.focus();
  }
}

form.addEventListener("submit", (event) => {
  event.preventDefault();
  const field = document.getElementById("token");
  sessionStorage.setItem(TOKEN, field.value.trim());
  field.value = "";
  refresh(true);
});
signOut.addEventListener("click", () => askToken("Signed out."));
document.getElementById("skip").addEventListener("click", (event) => {
  event.preventDefault();
  main.focus();
});
addEventListener("hashchange", () => refresh(true));
setInterval(() => {
  if (!document.hidden && sessionStorage.getItem(TOKEN) && route().repeats) refresh(false);
}, SECONDS * 1000);
refresh(false);
