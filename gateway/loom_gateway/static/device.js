// Takes the code that a program shows, from a person who is signed in. The code is never read from the address: a link
// that brought it along would let whoever sent the link in.
"use strict";

const state = document.getElementById("state");

async function answer(path, options) {
  const found = await fetch(path, { credentials: "same-origin", ...options });
  const body = await found.json();
  if (!found.ok) throw new Error(body.error ? body.error.message : "Something went wrong.");
  return body;
}

async function begin() {
  const session = await answer("../session", {});
  if (!session.signed_in) {
    location.assign("../sign-in?return_to=" + encodeURIComponent("/sign-in/device"));
    return;
  }
  state.textContent =
    `You are ${session.subject} in ${session.org}. A program whose code you type can do whatever you can; ` +
    "type only a code that you asked for yourself.";
  document.getElementById("ask").hidden = false;
  document.getElementById("allow").onclick = async () => {
    try {
      await answer("device/approve", {
        method: "POST",
        headers: { "content-type": "application/json", "x-loom-csrf": session.csrf_token },
        body: JSON.stringify({ user_code: document.getElementById("code").value }),
      });
      document.getElementById("ask").hidden = true;
      state.textContent = "The program is let in. You can close this page.";
    } catch (error) {
      state.textContent = error.message;
    }
  };
}

begin().catch((error) => {
  state.textContent = error.message;
});
