// Words that are offered below a condition while it is typed: keywords, and facts that other rules read.

import { h } from "../../shared/dom.js";
import { begunWord, offeredWords } from "../../shared/words.js";

let asked;

// The keywords of the language.
function keywords() {
  asked ??= fetch(new URL("console/words.json", document.baseURI)).then((response) => response.json()).catch(() => []);
  return asked;
}

// A list for a text area. Tab takes the marked word, the arrows mark another one, and Escape closes the list.
export function completed(input, names) {
  const list = h("ul", { class: "offers", role: "listbox", "aria-label": "Words that may be meant", hidden: true });
  let offers = [], marked = 0, begun = "";

  function close() {
    offers = [];
    show();
  }

  function show() {
    list.hidden = !offers.length;
    list.replaceChildren(...offers.map((word, at) => h("li", {
      role: "option", "aria-selected": String(at === marked),
      // The text area keeps the focus.
      onmousedown: (event) => { event.preventDefault(); take(word); },
    }, word)));
  }

  function take(word) {
    const end = input.selectionStart;
    input.setRangeText(word, end - begun.length, end, "end");
    close();
    input.dispatchEvent(new Event("input", { bubbles: true }));
    close();
  }

  async function look() {
    begun = begunWord(input.value, input.selectionStart);
    marked = 0;
    offers = begun ? offeredWords(begun, [...await keywords(), ...names]) : [];
    show();
  }

  function press(event) {
    if (!offers.length) return;
    if (event.key === "Tab" && !event.shiftKey) take(offers[marked]);
    else if (event.key === "Escape") close();
    else if (event.key === "ArrowDown" || event.key === "ArrowUp") {
      marked = (marked + (event.key === "ArrowDown" ? 1 : offers.length - 1)) % offers.length;
      show();
    } else return;
    event.preventDefault();
    event.stopPropagation();
  }

  input.setAttribute("aria-autocomplete", "list");
  input.addEventListener("input", look);
  input.addEventListener("keydown", press);
  input.addEventListener("blur", close);
  return list;
}
