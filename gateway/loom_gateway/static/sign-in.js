// Signs in with the link that brought here, else offers the identity providers. A link's secret stands behind `#`, which
// browsers send to nobody; it is taken off the address before anything else happens.
"use strict";

const state = document.getElementById("state");
const ways = document.getElementById("ways");
const out = document.getElementById("out");

function returnTo() {
  const asked = new URLSearchParams(location.search).get("return_to") || "";
  return asked.startsWith("/") && !asked.startsWith("//") && !asked.includes("\\") ? asked : "";
}

async function answer(path, options) {
  const found = await fetch(path, { credentials: "same-origin", ...options });
  const body = await found.json();
  if (!found.ok) throw new Error(body.error ? body.error.message : "Something went wrong.");
  return body;
}

function show(session) {
  ways.replaceChildren();
  out.hidden = !session.signed_in;
  if (session.signed_in) {
    state.textContent = `You are signed in as ${session.subject} in ${session.org}.`;
    out.onclick = async () => {
      try {
        await answer("sign-out", { method: "POST", headers: { "x-loom-csrf": session.csrf_token } });
        await begin();
      } catch (error) {
        state.textContent = error.message;
      }
    };
    // Relative, so that it holds under a proxy's prefix too.
    if (returnTo()) location.assign(`.${returnTo()}`);
    return;
  }
  state.textContent = session.providers.length
    ? "Choose how to sign in."
    : "Follow the link that `loom up` prints when it starts.";
  for (const provider of session.providers) {
    const way = document.createElement("a");
    way.href = `${provider.url}?return_to=${encodeURIComponent(returnTo() || "/")}`;
    way.textContent = provider.name;
    const item = document.createElement("li");
    item.append(way);
    ways.append(item);
  }
}

async function begin() {
  const secret = new URLSearchParams(location.hash.slice(1)).get("link");
  history.replaceState(null, "", location.pathname + location.search);
  try {
    if (secret) {
      const body = JSON.stringify({ secret });
      show(await answer("sign-in/link", { method: "POST", headers: { "content-type": "application/json" }, body }));
    } else {
      show(await answer("session", {}));
    }
  } catch (error) {
    state.textContent = error.message;
  }
}

begin();
