"use strict";

const result = document.getElementById("result");
const form = document.getElementById("form");
const logout = document.getElementById("logout");

async function post(path, body) {
  try {
    const response = await fetch(path, {
      method: "POST",
      headers: { "content-type": "application/json" },
      body: JSON.stringify(body),
    });
    return { ok: response.ok, answer: await response.json() };
  } catch (error) {
    return { ok: false, answer: { error: `no answer: ${error.message}` } };
  }
}

async function logIn(body) {
  const { ok, answer } = await post("/v1/login", body);
  result.textContent = ok
    ? `${answer.user} has the role ${answer.role} until ${answer.expires_at}`
    : answer.error;
  form.hidden = ok;
  logout.hidden = !ok;
}

form.addEventListener("submit", (event) => {
  event.preventDefault();
  const field = document.getElementById("token");
  logIn({ token: field.value.trim() });
  field.value = "";
});

logout.addEventListener("click", async () => {
  const { ok, answer } = await post("/v1/logout", null);
  result.textContent = ok ? "logged out" : answer.error;
  form.hidden = false;
  logout.hidden = true;
});

// The part behind # is not sent to a server, and so it is in no log. It leaves the history here.
const link = location.hash.slice(1);
if (link) {
  history.replaceState(null, "", location.pathname);
  logIn({ link });
}
