// Renews the parts of a page that are marked with data-live when the console says that there is something newer, and
// gives the keyboard its short cuts. Without this script every page still works, and is renewed by loading it again.
"use strict";

const body = document.body;
const announcer = document.getElementById("announcer");
const pauseButton = document.getElementById("pause");
const shortcuts = document.getElementById("shortcuts");
const KEYS_OFF = "holdfast-console-keys-off";

let isPaused = false;
let lastSummary = body.dataset.summary || "";
let wasLost = false;
let isRenewing = false;
let source = null;

function say(text) {
  announcer.textContent = text;
}

function placeOf(element) {
  // What finds the same element in the renewed part: its id, or its address with its name.
  if (!element || element === body) return null;
  if (element.id) return `#${CSS.escape(element.id)}`;
  const address = element.getAttribute("href");
  return address ? `a[href="${CSS.escape(address)}"]` : null;
}

function isSelecting(part) {
  const selection = document.getSelection();
  return Boolean(selection && !selection.isCollapsed && part.contains(selection.anchorNode));
}

function renewPart(part, fresh) {
  if (part.innerHTML === fresh.innerHTML || isSelecting(part)) return;
  const focused = part.contains(document.activeElement) ? placeOf(document.activeElement) : null;
  const scrolled = [...part.querySelectorAll(".scroll")].map((each) => each.scrollLeft);
  part.replaceChildren(...[...fresh.childNodes].map((node) => document.importNode(node, true)));
  [...part.querySelectorAll(".scroll")].forEach((each, index) => { each.scrollLeft = scrolled[index] || 0; });
  if (focused) part.querySelector(focused)?.focus({ preventScroll: true });
}

async function renew() {
  if (isRenewing) return;
  isRenewing = true;
  try {
    const answer = await fetch(location.href, { headers: { "X-Holdfast-Live": "1" }, credentials: "same-origin" });
    if (!answer.ok || answer.redirected) return;
    const fresh = new DOMParser().parseFromString(await answer.text(), "text/html");
    if (isPaused) return;  // Paused while the answer was on its way.
    for (const part of document.querySelectorAll("[data-live]")) {
      const other = fresh.getElementById(part.id);
      if (other) renewPart(part, other);
    }
    body.dataset.renewals = String(Number(body.dataset.renewals || 0) + 1);
  } catch {
    // The stream of events reports a lost connection.
  } finally {
    isRenewing = false;
  }
}

function listen() {
  if (source || document.hidden) return;
  source = new EventSource("/events");
  source.addEventListener("look", (event) => {
    const told = JSON.parse(event.data);
    body.classList.add("is-live");
    body.classList.remove("is-lost");
    if (wasLost) say("The console answers again.");
    wasLost = false;
    if (isPaused || document.hidden) return;
    if (told.summary !== lastSummary) say(told.summary);
    lastSummary = told.summary;
    renew();
  });
  source.addEventListener("error", () => {
    body.classList.remove("is-live");
    body.classList.add("is-lost");
    if (!wasLost) say("The connection to the console is lost. The page is not renewed until it is back.");
    wasLost = true;
    if (source && source.readyState === EventSource.CLOSED) {
      source = null;
      setTimeout(listen, 10000);
    }
  });
}

function hush() {
  // A browser has few connections to one host: pages that nobody sees must not hold them all.
  source?.close();
  source = null;
}

function setPaused(value) {
  isPaused = value;
  pauseButton.setAttribute("aria-pressed", String(value));
  pauseButton.textContent = value ? "Renewing is paused" : "Pause renewing";
  say(value ? "The page stays as it is." : "The page is renewed again.");
  if (!value) renew();
}

if (pauseButton && document.querySelector("[data-live]")) {
  pauseButton.hidden = false;
  pauseButton.addEventListener("click", () => setPaused(!isPaused));
  document.addEventListener("visibilitychange", () => (document.hidden ? hush() : listen()));
  listen();
}

// Keys ------------------------------------------------------------------------------------------------------

let before = "";

function areKeysOff() {
  try { return localStorage.getItem(KEYS_OFF) === "yes"; } catch { return false; }
}

function isTyping(target) {
  return target.matches("input:not([type=checkbox]), textarea, select") || target.isContentEditable;
}

function pressed(event) {
  if (event.ctrlKey || event.metaKey || event.altKey || isTyping(event.target) || areKeysOff()) return;
  if (shortcuts?.open) return;
  const pair = before + event.key;
  before = event.key === "g" ? "g" : "";
  const link = document.querySelector(`[data-key="${CSS.escape(pair)}"]`);
  if (link) {
    event.preventDefault();
    link.click();
  } else if (event.key === "/") {
    const field = document.querySelector("[data-find]");
    if (field) { event.preventDefault(); field.focus(); field.select?.(); }
  } else if (event.key === "p" && pauseButton && !pauseButton.hidden) {
    setPaused(!isPaused);
  } else if (event.key === "?" && shortcuts) {
    event.preventDefault();
    shortcuts.showModal();
  }
}

document.addEventListener("keydown", pressed);
document.getElementById("show-shortcuts")?.addEventListener("click", () => shortcuts.showModal());
document.getElementById("close-shortcuts")?.addEventListener("click", () => shortcuts.close());
const switchOff = document.getElementById("keys-off");
if (switchOff) {
  switchOff.checked = areKeysOff();
  switchOff.addEventListener("change", () => {
    try { localStorage.setItem(KEYS_OFF, switchOff.checked ? "yes" : "no"); } catch { /* Not kept, then. */ }
  });
}

// The field of a place in the messages says what belongs into it.
const place = document.getElementById("from");
const at = document.getElementById("at-field");
if (place && at) {
  const show = () => { at.hidden = !["offset", "time"].includes(place.value); };
  place.addEventListener("change", show);
  show();
}
