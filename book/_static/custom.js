/* Names for what the theme leaves without one, or gives a name that is not the text that one sees. */
document.addEventListener("DOMContentLoaded", () => {
  for (const summary of document.querySelectorAll(".bd-sidenav summary"))
    summary.setAttribute("aria-label", "Pages under " + summary.closest("li").querySelector("a").textContent.trim());
  for (const button of document.querySelectorAll(".search-button-field")) button.removeAttribute("aria-label");
  for (const button of document.querySelectorAll(".theme-switch-button")) {
    button.removeAttribute("aria-label");
    button.insertAdjacentHTML("afterbegin", '<span class="visually-hidden">Colours: </span>');
  }
});
