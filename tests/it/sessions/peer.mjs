// What the reference program makes of a session file, and a file written by it. Uses its public API only.
//   node peer.mjs read MODULES FILE          prints the projection of FILE
//   node peer.mjs write MODULES DIR CWD      writes a session into DIR, prints its path and projection
import { pathToFileURL } from "node:url";

const [mode, modules, first, cwd] = process.argv.slice(2);
const entry = modules + "/@earendil-works/pi-coding-agent/dist/index.js";
const { SessionManager, convertToLlm } = await import(pathToFileURL(entry).href);

function report(manager) {
  const context = manager.buildSessionContext();
  const labels = {};
  for (const { id } of manager.getEntries()) {
    const label = manager.getLabel(id);
    if (label !== undefined) labels[id] = label;
  }
  console.log(JSON.stringify({
    file: manager.getSessionFile(),
    ids: manager.getEntries().map((one) => one.id),
    leaf: manager.getLeafId(),
    path: manager.getBranch().map((one) => one.id),
    name: manager.getSessionName() ?? null,
    labels,
    model: context.model,
    thinkingLevel: context.thinkingLevel,
    messages: context.messages,
    llmCount: convertToLlm(context.messages).length,
  }));
}

if (mode === "read") {
  report(SessionManager.open(first));
} else {
  const usage = { input: 1, output: 2, cacheRead: 0, cacheWrite: 0, totalTokens: 3, cost: { input: 0, output: 0, cacheRead: 0, cacheWrite: 0, total: 0 } };
  const say = (text) => ({ role: "user", content: text, timestamp: Date.now() });
  const answer = (text) => ({ role: "assistant", content: [{ type: "text", text }], api: "x", provider: "p", model: "m", usage, stopReason: "stop", timestamp: Date.now() });
  const manager = SessionManager.create(cwd, first);
  manager.appendModelChange("p", "m");
  manager.appendThinkingLevelChange("high");
  manager.appendMessage({ role: "system", content: "base", sections: { a: "A" }, toolsAdded: [{ name: "read", description: "d", parameters: { type: "object" } }], timestamp: Date.now() });
  const asked = manager.appendMessage(say("one \u2028 é 😀"));
  const replied = manager.appendMessage(answer("two"));
  manager.appendLabelChange(asked, "mark");
  manager.appendMessage(say("other branch"));
  manager.branchWithSummary(replied, "what the other branch did", { readFiles: [], modifiedFiles: [] }, false);
  const third = manager.appendMessage(say("three"));
  const fourth = manager.appendMessage(answer("four"));
  manager.appendCompaction("summary", third, 100, { readFiles: [], modifiedFiles: [] }, false, usage);
  manager.appendContextEdit(fourth, { content: "edited" });
  manager.appendCustomMessageEntry("x", "for the model", true, { d: 1 });
  manager.appendSessionInfo("a name");
  manager.appendMessage(say("five"));
  report(manager);
}
