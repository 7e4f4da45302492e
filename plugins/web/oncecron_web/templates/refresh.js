// Keeps a page fresh without a blink: asks for the same address again, and changes only what has changed.
// Opened details, focus, scrolling, a selection and what is typed into a form stay. Without it, a page is as it was read.
"use strict";
(() => {
  const EVERY = 5000, PATIENCE = 15000;
  const note = document.createElement("p");
  note.className = "not-refreshed";
  note.setAttribute("role", "status");
  note.hidden = true;
  document.body.append(note);

  let tag = null, fresh = new Date(), timer = 0, isAsking = false;

  async function refresh() {
    if (isAsking) return;
    isAsking = true;
    clearTimeout(timer);
    try {
      const answer = await fetch(location.href.split("#")[0], {
        cache: "no-store", credentials: "same-origin", headers: tag ? { "If-None-Match": tag } : {},
        redirect: "error", signal: AbortSignal.timeout(PATIENCE),
      });
      if (answer.status !== 304) await show(answer);
      fresh = new Date();
      note.hidden = true;
    } catch (error) {
      const since = fresh.toLocaleTimeString([], { hour: "2-digit", minute: "2-digit" });
      const text = `not refreshed since ${since}${error.isAnswer ? `: ${error.message}` : ""}`;
      if (note.textContent !== text) note.textContent = text;
      note.hidden = false;
    } finally {
      isAsking = false;
      if (!document.hidden) timer = setTimeout(refresh, EVERY);
    }
  }

  async function show(answer) {
    const page = new DOMParser().parseFromString(await answer.text(), "text/html");
    const main = page.querySelector("main");
    const isOurs = main && answer.headers.get("Content-Type")?.startsWith("text/html");
    if (!answer.ok || !isOurs) {
      const title = isOurs ? page.querySelector("h1") : null; // a proxy has pages of its own
      throw Object.assign(new Error(title?.textContent.trim() ?? answer.status), { isAnswer: true });
    }
    const [before, now] = [document, page].map((each) => [...each.querySelectorAll("style")].map((style) => style.textContent).join());
    if (now !== before) {
      location.reload(); // the server was upgraded
      return;
    }
    const focused = document.activeElement;
    for (const part of [".top", "main", "footer"]) {
      const [from, to] = [document, page].map((each) => each.querySelector(part));
      if (from && to) change(from, to);
    }
    document.title = page.title;
    if (focused !== document.activeElement && focused?.isConnected) focused.focus({ preventScroll: true });
    tag = answer.headers.get("ETag");
  }

  // Make an element like another one, and leave alone what is alike.
  function change(from, to) {
    if (from.isEqualNode(to) || (from.localName === "form" && from.contains(document.activeElement))) return;
    for (const { name } of [...from.attributes]) {
      if (!to.hasAttribute(name) && !isOpen(from, name)) from.removeAttribute(name);
    }
    for (const { name, value } of to.attributes) {
      if (from.getAttribute(name) !== value && !isOpen(from, name)) from.setAttribute(name, value);
    }
    const left = [...from.childNodes];
    let place = from.firstChild;
    for (const wanted of [...to.childNodes]) {
      const found = left.findIndex((each) => isSame(each, wanted));
      const node = found < 0 ? document.importNode(wanted, true) : left.splice(found, 1)[0];
      if (node === place) place = node.nextSibling;
      else from.insertBefore(node, place);
      if (found < 0) continue;
      if (node.nodeType === Node.ELEMENT_NODE) change(node, wanted);
      else if (node.data !== wanted.data) node.data = wanted.data;
    }
    for (const each of left) each.remove();
  }

  const isOpen = (element, name) => element.localName === "details" && name === "open";

  const nameOf = (node) => node.id || node.querySelector?.(":scope > summary, :scope > h3 > .title, :scope > .name, :scope > td .name")?.textContent || "";

  function isSame(one, other) {
    return one.nodeName === other.nodeName && (one.nodeType !== Node.ELEMENT_NODE || nameOf(one) === nameOf(other));
  }

  document.addEventListener("visibilitychange", () => {
    if (document.hidden) clearTimeout(timer);
    else refresh();
  });
  timer = setTimeout(refresh, EVERY);
})();
