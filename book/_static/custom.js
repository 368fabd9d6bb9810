/* Names for what the theme leaves without one, or gives a name that is not the text that one sees. */
document.addEventListener("DOMContentLoaded", () => {
  for (const summary of document.querySelectorAll(".bd-sidenav summary"))
    summary.setAttribute("aria-label", "Pages under " + summary.closest("li").querySelector("a").textContent.trim());
  // A long name breaks after a dot, an underscore or a bracket, and not within a word.
  for (const code of document.querySelectorAll(".bd-article :is(p, li, td, dd) code")) {
    const texts = [], walker = document.createTreeWalker(code, NodeFilter.SHOW_TEXT);
    while (walker.nextNode()) if (walker.currentNode.length > 13) texts.push(walker.currentNode);
    for (const text of texts) {
      const parts = text.data.split(/(?<=[._(,/=])(?=[^\s)])/);
      text.replaceWith(...parts.flatMap((part, i) => (i ? [document.createElement("wbr"), part] : [part])));
    }
  }
  for (const option of document.querySelectorAll(".bd-article code .pre"))  // not after its hyphens
    if (option.textContent.startsWith("-")) option.style.whiteSpace = "nowrap";
  for (const button of document.querySelectorAll(".search-button-field")) button.removeAttribute("aria-label");
  for (const button of document.querySelectorAll(".theme-switch-button")) {
    button.removeAttribute("aria-label");
    button.insertAdjacentHTML("afterbegin", '<span class="visually-hidden">Colours: </span>');
  }
});
