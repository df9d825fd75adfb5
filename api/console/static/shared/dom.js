// Builds elements. Text only ever becomes text: no string is parsed as HTML.

export function h(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (value === true) element.setAttribute(name, "");
    else if (value !== false && value != null) element.setAttribute(name, value);
  }
  element.append(...children.flat(Infinity).filter((child) => child != null && child !== false));
  return element;
}

export function field(label, input, hint) {
  return h("label", { class: "field" }, h("span", {}, label), input, hint && h("small", {}, hint));
}

export function table(heads, rows, kind = "") {
  return h("div", { class: "scroll" },
    h("table", { class: kind },
      h("thead", {}, h("tr", {}, heads.map((head) => h("th", { scope: "col" }, head)))),
      h("tbody", {}, rows)));
}

export function row(...cells) {
  return h("tr", {}, cells.map((cell) => h("td", {}, cell)));
}

const SAID_MS = 4000;

// Says something to everyone, screen readers included; returns a function that takes it back once its cause has gone.
// What failed, or is lasting, stays until then, until something else is said or done, or until the reader closes it.
export function say(text, failed = false, lasting = failed) {
  const place = document.getElementById("said");
  const message = h("p", { class: failed ? "failed" : "" }, h("span", {}, text), lasting &&
    h("button", { type: "button", "aria-label": "Close the message", onclick: () => message.remove() }, "×"));
  place.replaceChildren(message);
  if (!lasting) setTimeout(() => message.remove(), SAID_MS);
  return () => message.remove();
}

// Takes back what was said last: something else is done now.
export function unsay(which = "p") {
  document.querySelector(`#said ${which}`)?.remove();
}

// Why a list is empty.
export function nothing(text) {
  return h("p", { class: "quiet nothing" }, text);
}

export function failure(error) {
  return h("p", { class: "failed", role: "alert" }, error.message);
}

// Gives the focus to a control, to the one with the same `data-key` if it was drawn anew, or to the page if it is gone.
function focusAgain(control) {
  const { key } = control.dataset;
  const same = control.isConnected ? control : key && document.querySelector(`[data-key="${CSS.escape(key)}"]`);
  same?.focus({ preventScroll: true });
  if (document.activeElement === document.body) document.getElementById("main").focus({ preventScroll: true });
}

// Draws something anew that may have the focus, which it keeps.
export function drawnAnew(draw) {
  const focused = document.activeElement;
  draw();
  if (focused !== document.activeElement) focusAgain(focused);
}

// A button that is disabled while its work goes on, and says what failed. It keeps the focus.
export function action(label, work, attributes = {}) {
  const button = h("button", { type: "button", ...attributes, onclick: run }, label);
  async function run() {
    const focused = document.activeElement === button;
    button.disabled = true;
    unsay();
    try {
      await work();
    } catch (error) {
      say(error.message, true);
    } finally {
      button.disabled = false;
      if (focused && document.activeElement === document.body) focusAgain(button);
    }
  }
  return button;
}

// Submits a form on Ctrl+Enter.
export function submitQuickly(event) {
  if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) event.currentTarget.requestSubmit();
}
