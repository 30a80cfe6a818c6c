"use strict";
{
  const list = document.getElementById("suspects");
  const settings = JSON.parse(document.getElementById("settings").textContent);
  const cards = list ? [...list.children] : [];
  const decisions = new Map();

  const show = (card) => {
    const decision = decisions.get(card);
    card.classList.toggle("agreed", decision?.decision === "agree");
    card.classList.toggle("disagreed", decision?.decision === "disagree");
    card.querySelector(".verdict").textContent = !decision ? ""
      : decision.decision === "agree" ? `wrong: is ${decision.label}` : "right as it is";
    document.getElementById("decided").textContent = `${decisions.size} of ${cards.length} decided`;
    document.getElementById("export").disabled = decisions.size === 0;
  };

  const decide = (card, decision) => {
    const label = decision === "agree" ? card.querySelector("select").value : card.dataset.given;
    decisions.set(card, { decision, label });
    show(card);
  };

  const go = (number) => {
    const card = cards[Math.max(0, Math.min(cards.length - 1, number))];
    for (const other of cards) other.tabIndex = other === card ? 0 : -1;
    card.focus();
    card.scrollIntoView({ block: "nearest" });
  };

  cards.forEach((card, number) => {
    card.querySelector(".agree").addEventListener("click", () => decide(card, "agree"));
    card.querySelector(".disagree").addEventListener("click", () => decide(card, "disagree"));
    card.querySelector("select").addEventListener("change", () => decide(card, "agree"));
    card.addEventListener("focusin", () => { for (const other of cards) other.tabIndex = other === card ? 0 : -1; });
    card.dataset.number = number;
  });

  document.addEventListener("keydown", (event) => {
    if (!cards.length || event.ctrlKey || event.metaKey || event.altKey || event.target.closest("select")) return;
    const card = event.target.closest(".suspect") ?? cards.find((one) => one.tabIndex === 0);
    const number = Number(card.dataset.number);
    if (event.key === "a" || event.key === "d") {
      decide(card, event.key === "a" ? "agree" : "disagree");
      go(number + 1);
    } else if (event.key === "u") {
      const undone = decisions.has(card) ? card : cards[number - 1] ?? card;
      decisions.delete(undone);
      show(undone);
      go(cards.indexOf(undone));
    } else if (event.key === "j" || event.key === "ArrowDown") go(number + 1);
    else if (event.key === "k" || event.key === "ArrowUp") go(number - 1);
    else return;
    event.preventDefault();
  });

  const quoted = (text) => (/[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text);

  document.getElementById("export")?.addEventListener("click", () => {
    const rows = [["row", "id", "given", "decision", "label"]];
    for (const [card, { decision, label }] of decisions) {
      rows.push([card.dataset.row, card.dataset.id, card.dataset.given, decision, label]);
    }
    const text = rows.map((row) => row.map(quoted).join(",") + "\r\n").join("");
    const link = document.createElement("a");
    link.href = "data:text/csv;charset=utf-8," + encodeURIComponent(text);
    link.download = settings.export;
    link.click();
  });
}
