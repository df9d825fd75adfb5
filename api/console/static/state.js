import { h } from "./dom.js";

export async function stateView() {
  return h("p", {}, "not yet");
}
