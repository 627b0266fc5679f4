// Keeps the page up to date, the times readable and the theme as chosen. Every page works without it.
"use strict";

const root = document.documentElement;
const main = document.getElementById("main");
let skew = 0; // seconds that the database's clock is ahead of this machine's

// -- theme: the system's, unless one was chosen here ---------------------------------------------------------------------

function chosen() {
  try { return localStorage.getItem("trueup-theme"); } catch { return null; }
}

function isDark() {
  return root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
}

if (chosen() === "dark" || chosen() === "light") root.dataset.theme = chosen();

const toggle = document.getElementById("theme");
if (toggle) {
  const label = () => {
    toggle.textContent = isDark() ? "Light" : "Dark";
    toggle.setAttribute("aria-label", isDark() ? "Use the light theme" : "Use the dark theme");
  };
  label();
  toggle.hidden = false;
  toggle.addEventListener("click", () => {
    root.dataset.theme = isDark() ? "light" : "dark";
    try { localStorage.setItem("trueup-theme", root.dataset.theme); } catch { /* for this page only, then */ }
    label();
  });
}

// -- times ---------------------------------------------------------------------------------------------------------------

function whole(seconds) {
  if (seconds < 60) return Math.floor(seconds) + "s";
  if (seconds < 3600) return Math.floor(seconds / 60) + "m";
  if (seconds < 172800) return Math.floor(seconds / 3600) + "h";
  return Math.floor(seconds / 86400) + "d";
}

function readTimes() {
  const now = Date.now() / 1000 + skew;
  for (const time of document.querySelectorAll("time[data-relative]")) {
    const seconds = now - Date.parse(time.dateTime) / 1000;
    const text = Math.abs(seconds) < 1 ? "now" : seconds > 0 ? whole(seconds) + " ago" : "in " + whole(-seconds);
    if (time.textContent !== text) time.textContent = text;
  }
}

// -- changing what is shown into what is there, keeping focus, open parts and what was typed --------------------------------

function key(node) {
  return node.nodeType === 1 ? node.id || node.dataset.key || node.getAttribute("aria-labelledby") || "" : "";
}

function isUsed(node) {
  return node.contains(document.activeElement) || getSelection().containsNode(node, true);
}

function alike(a, b) {
  return a.nodeType === b.nodeType && a.nodeName === b.nodeName && key(a) === key(b);
}

function morph(from, to) {
  if (from.nodeType === 3) {
    if (from.data !== to.data) from.data = to.data;
    return;
  }
  if (from.nodeType !== 1 || from.hasAttribute("data-keep") || from.isEqualNode(to)) return;
  for (const { name } of [...from.attributes]) {
    if (!to.hasAttribute(name) && name !== "open" && name !== "class") from.removeAttribute(name);
  }
  for (const { name, value } of [...to.attributes]) {
    if ((name !== "value" || from.nodeName === "PROGRESS") && from.getAttribute(name) !== value) from.setAttribute(name, value);
  }
  morphChildren(from, to);
}

// What stays keeps its place in the document if anything can: a node that moves loses the focus and the selection.
function morphChildren(from, to) {
  const names = new Set(Array.from(to.childNodes, key)), keyed = new Map();
  for (const child of [...from.childNodes]) {
    if (!key(child)) continue;
    if (names.has(key(child))) keyed.set(key(child), child);
    else child.remove();
  }
  let place = from.firstChild;
  for (const wanted of [...to.childNodes]) {
    const known = key(wanted) ? keyed.get(key(wanted)) : null;
    if (known && alike(known, wanted)) {
      keyed.delete(key(wanted));
      while (place && place !== known && (place.nodeType === 3 || isUsed(known))) {
        const next = place.nextSibling;
        place.remove();
        place = next;
      }
      if (known === place) place = place.nextSibling;
      else from.insertBefore(known, place);
      morph(known, wanted);
    } else if (place && !key(wanted) && alike(place, wanted)) {
      const next = place.nextSibling;
      morph(place, wanted);
      place = next;
    } else {
      if (wanted.nodeType === 1 && wanted.dataset.key) wanted.classList.add("new");
      from.insertBefore(wanted, place);
    }
  }
  while (place) {
    const next = place.nextSibling;
    place.remove();
    place = next;
  }
}

// -- live: a stream of the page's changing part, while somebody can see it -------------------------------------------------

const sign = document.getElementById("live");
let stream = null;

function say(is, text) {
  if (!sign) return;
  sign.dataset.is = is;
  sign.textContent = text;
}

function listen() {
  if (stream || !main || !main.hasAttribute("data-live")) return;
  say("waiting", "connecting");
  stream = new EventSource(location.pathname + location.search);
  stream.onopen = () => say("live", "live");
  stream.onerror = () => {
    say("away", "reconnecting");
    if (stream && stream.readyState === EventSource.CLOSED) again();
  };
  stream.addEventListener("away", () => say("away", "database away"));
  stream.addEventListener("page", (event) => {
    const { html, title, badge, now } = JSON.parse(event.data);
    skew = now - Date.now() / 1000;
    const parsed = new DOMParser().parseFromString("<main>" + html + "</main>", "text/html");
    morphChildren(main, parsed.querySelector("main"));
    document.title = title;
    const noted = document.getElementById("badge");
    if (noted && noted.innerHTML !== badge) noted.innerHTML = badge;
    readTimes();
    say("live", "live");
  });
}

// The browser tries again by itself, unless it got an answer that is no stream: from a proxy whose server restarts, or the login.
function again() {
  stream = null;
  setTimeout(async () => {
    if (stream || document.hidden) return;
    try {
      const answer = await fetch(location.href, { method: "HEAD", redirect: "manual" });
      if (answer.type === "opaqueredirect" || answer.status === 401) return location.reload();
    } catch { /* nothing answers yet */ }
    listen();
  }, 3000);
}

function rest() {
  if (stream) stream.close();
  stream = null;
  say("paused", "paused");
}

document.addEventListener("visibilitychange", () => (document.hidden ? rest() : listen()));
addEventListener("pagehide", () => stream && stream.close());

if (main) {
  const now = Number(document.body.dataset.now);
  if (now) skew = now - Date.now() / 1000;
  setInterval(() => document.hidden || readTimes(), 1000);
  if (document.hidden) rest(); else listen();
}

// -- keyboard: / to the filters, g and a letter to a page, Escape closes what was opened -------------------------------------

let gone = 0;
addEventListener("keydown", (event) => {
  if (event.key === "Escape") {
    for (const open of document.querySelectorAll("details.ask[open]")) {
      open.open = false;
      open.querySelector("summary").focus();
    }
    return;
  }
  if (event.ctrlKey || event.metaKey || event.altKey || /^(INPUT|SELECT|TEXTAREA)$/.test(event.target.nodeName)) return;
  if (event.key === "/") {
    const first = document.querySelector(".filters input:not([type=hidden]), .filters select");
    if (!first) return;
    event.preventDefault();
    first.closest("details")?.setAttribute("open", "");
    first.focus();
  } else if (event.key === "g") {
    gone = Date.now();
  } else if (Date.now() - gone < 1000) {
    const link = document.querySelector(`nav a[data-go="${CSS.escape(event.key)}"]`);
    if (link) link.click();
    gone = 0;
  }
});

// A second panel closes the first.
document.addEventListener("toggle", (event) => {
  if (!event.target.open || !event.target.matches("details.ask")) return;
  for (const other of document.querySelectorAll("details.ask[open]")) if (other !== event.target) other.open = false;
}, true);

// On a phone the list comes first: filters open at a touch.
const filtering = document.querySelector(".filtering");
if (filtering && matchMedia("(max-width: 48rem)").matches) filtering.open = false;

// On a phone the pages are a row that scrolls: the current one is in view. Not by scrollIntoView, from where Tab would go on.
const current = document.querySelector("nav a[aria-current=page]");
for (let row = current?.parentElement; row && row !== document.body; row = row.parentElement) {
  if (row.scrollWidth <= row.clientWidth) continue;
  row.scrollLeft += current.getBoundingClientRect().left - row.getBoundingClientRect().left - row.clientWidth / 2;
  break;
}
