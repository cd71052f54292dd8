// Draws the API page from the OpenAPI document that lies beside it. Text is set as text, never as markup.
"use strict";

function element(name, attributes = {}, ...children) {
  const node = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
  node.append(...children.filter((child) => child !== null));
  return node;
}

function resolved(document_, value) {
  if (!value || !value.$ref) return value;
  return value.$ref.split("/").slice(1).reduce((node, key) => node[key], document_);
}

function kind(schema) {
  if (schema.type === "array") return `list of ${kind(schema.items)}`;
  return schema.type;
}

function rules(schema) {
  const value = schema.type === "array" ? { ...schema.items, ...schema } : schema;
  const told = [];
  if (schema.enum) told.push(`one of ${schema.enum.join(", ")}`);
  if (value.minimum !== undefined && value.minimum > -2147483648) told.push(`at least ${value.minimum}`);
  if (value.maximum !== undefined && value.maximum < 2147483647) told.push(`at most ${value.maximum}`);
  if (schema.minItems) told.push(`at least ${schema.minItems} items`);
  if (schema.maxItems !== undefined) told.push(`at most ${schema.maxItems} items`);
  if (value.maxLength !== undefined) told.push(`up to ${value.maxLength} characters`);
  if (value.pattern) told.push(`matches ${value.pattern}`);
  return told.join("; ");
}

function rowsOf(schema, prefix, required) {
  const rows = [];
  for (const [name, member] of Object.entries(schema.properties || {})) {
    const needed = required && (schema.required || []).includes(name);
    rows.push(element("tr", {},
      element("td", {}, prefix + name + (needed ? " *" : "")),
      element("td", {}, kind(member)),
      element("td", {}, member.description || "", rules(member) ? element("div", { class: "rules" }, rules(member)) : null)));
    const inner = member.type === "array" ? member.items : member;
    if (inner.type === "object") rows.push(...rowsOf(inner, `${prefix}${name}${member.type === "array" ? "[]" : ""}.`, required));
  }
  return rows;
}

function fields(title, schema, required) {
  const rows = rowsOf(schema, "", required);
  if (!rows.length) return element("p", { class: "note" }, `${title}: no fields.`);
  const head = element("tr", {}, ...["Field", "Type", "What it says"].map((text) => element("th", { scope: "col" }, text)));
  return element("details", required ? { open: "" } : {}, element("summary", {}, title),
    element("table", {}, element("thead", {}, head), element("tbody", {}, ...rows)));
}

function example(schema) {
  const body = {};
  for (const name of schema.required || []) {
    const member = schema.properties[name];
    body[name] = { string: (member.enum || [""])[0], integer: member.minimum || 0, number: 0, boolean: false, array: [], object: {} }[member.type];
  }
  return JSON.stringify(body, null, 2);
}

function errors(document_, operation) {
  const list = element("ul");
  for (const [status, response] of Object.entries(operation.responses)) {
    if (status === "200") continue;
    const told = resolved(document_, response).description.replaceAll("\n- ", "\n").replace(/^- /, "");
    list.append(element("li", { class: "description" }, `${status} ${told}`));
  }
  return element("details", {}, element("summary", {}, "Errors"), list);
}

function trial(path, method, schema) {
  const body = element("textarea", { "aria-label": `Body of ${path}`, spellcheck: "false" });
  if (schema) body.value = example(schema);
  const answer = element("pre", { hidden: "", tabindex: "0" });
  const button = element("button", { type: "button" }, "Send");
  button.addEventListener("click", async () => {
    const token = document.getElementById("token").value.trim();
    const headers = token ? { Authorization: `Bearer ${token}` } : {};
    if (schema) headers["Content-Type"] = "application/json";
    answer.hidden = false;
    answer.textContent = "…";
    try {
      const response = await fetch(path.slice(1), { method, headers, body: schema ? body.value : undefined });
      const text = await response.text();
      let shown = text;
      try { shown = JSON.stringify(JSON.parse(text), null, 2); } catch { /* shown as it came */ }
      answer.textContent = `${response.status}\n${shown}`;
    } catch (error) {
      answer.textContent = `The gateway does not answer: ${error.message}`;
    }
  });
  return element("details", {}, element("summary", {}, "Try it"), schema ? body : null, button, answer);
}

function drawn(document_, path, method, operation) {
  const content = operation.requestBody && operation.requestBody.content["application/json"];
  const request = content ? resolved(document_, content.schema) : null;
  const answered = operation.responses["200"].content["application/json"].schema;
  return element("article", { id: operation.operationId },
    element("h2", {}, `${method.toUpperCase()} ${path}`),
    element("p", { class: "description" }, operation.description || operation.summary),
    request ? fields("Request", request, true) : null,
    fields("Answer", resolved(document_, answered), false),
    errors(document_, operation),
    trial(path, method.toUpperCase(), request));
}

async function draw() {
  const response = await fetch("openapi.json");
  if (!response.ok) throw new Error(`openapi.json answered ${response.status}`);
  const document_ = await response.json();
  document.getElementById("version").textContent = document_.info.version;
  document.getElementById("introduction").textContent = document_.info.description;
  const operations = document.getElementById("operations");
  const contents = document.getElementById("contents");
  operations.replaceChildren();
  for (const [path, methods] of Object.entries(document_.paths)) {
    for (const [method, operation] of Object.entries(methods)) {
      operations.append(drawn(document_, path, method, operation));
      contents.append(element("a", { href: `#${operation.operationId}` }, path.replace("/v1/", "")));
    }
  }
}

draw().catch((error) => { document.getElementById("state").textContent = `The API page cannot be drawn: ${error.message}`; });
