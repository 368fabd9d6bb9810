// A term shows what the glossary says of it where one points at it, comes to it with the tab key, or taps on it.
// A click, or a second tap, follows the link.
document.addEventListener("DOMContentLoaded", () => {
  const data = document.getElementById("terms");
  if (!data) return;
  const terms = JSON.parse(data.textContent), card = document.createElement("div");
  Object.assign(card, { id: "term-card", hidden: true }).setAttribute("role", "tooltip");
  document.querySelector("article").append(card);
  let owner, timer, touched;

  function hide() {
    clearTimeout(timer);
    owner?.removeAttribute("aria-describedby");
    owner = undefined;
    card.hidden = true;
  }
  function show(link, text) {
    hide();
    owner = link;
    link.setAttribute("aria-describedby", card.id);
    card.textContent = text;
    card.hidden = false;
    const place = link.getBoundingClientRect(), below = place.bottom + card.offsetHeight + 6 < innerHeight;
    const right = document.documentElement.clientWidth - card.offsetWidth - 8;
    card.style.left = `${Math.max(8, Math.min(place.left, right))}px`;
    card.style.top = `${below ? place.bottom + 2 : place.top - card.offsetHeight - 2}px`;
  }
  const soon = (act, ...given) => { clearTimeout(timer); timer = setTimeout(act, 250, ...given); };

  for (const link of document.querySelectorAll('article a[href*="glossary.html#term-"]')) {
    const text = terms[decodeURIComponent(link.hash.slice(1))];
    if (!text) continue;
    link.addEventListener("pointerdown", (event) => { touched = event.pointerType === "touch" && owner !== link; });
    link.addEventListener("click", (event) => {
      if (touched) { event.preventDefault(); show(link, text); }
      touched = false;
    });
    link.addEventListener("mouseenter", () => soon(show, link, text));
    link.addEventListener("mouseleave", () => soon(hide));
    link.addEventListener("focus", () => link.matches(":focus-visible") && show(link, text));
    link.addEventListener("blur", hide);
  }
  card.addEventListener("mouseenter", () => clearTimeout(timer)); // it can be read, and copied from
  card.addEventListener("mouseleave", () => soon(hide));
  addEventListener("keydown", ({ key }) => key === "Escape" && hide());
  addEventListener("scroll", hide, { passive: true });
  addEventListener("pointerdown", ({ target }) => owner && !owner.contains(target) && target !== card && hide());
});
