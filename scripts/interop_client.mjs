// Drives an RPC server with the reference's own client class: interop_client.mjs PACKAGE_DIR CLI_SCRIPT CWD [ARG...]
// Prints one JSON object: what each call gave, or its error.
const [packageDir, cliPath, cwd, ...args] = process.argv.slice(2);
const { RpcClient } = await import(`${packageDir}/dist/index.js`);

const out = {};
const client = new RpcClient({ cliPath, cwd, args, env: process.env });
const seen = [];
client.onEvent((event) => seen.push(event.type));

async function step(name, action) {
  try {
    out[name] = (await action()) ?? null;
  } catch (error) {
    out[name] = { error: String(error.message ?? error) };
  }
}

await client.start();
await step("state", () => client.getState());
await step("models", () => client.getAvailableModels());
await step("levels", () => client.getAvailableThinkingLevels());
await step("name", () => client.setSessionName("  from the\nclient "));
await step("prompt", async () => (await client.promptAndWait("say something")).map((event) => event.type));
await step("text", () => client.getLastAssistantText());
await step("tools", async () => (await client.promptAndWait("write a file")).map((event) => event.type));
await step("bash", () => client.bash("printf 'a\\tb\\n'; exit 3"));
await step("messages", () => client.getMessages());
await step("entries", () => client.getEntries());
await step("tree", () => client.getTree());
await step("stats", () => client.getSessionStats());
await step("commands", () => client.getCommands());
await step("forks", () => client.getForkMessages());
await step("steering", () => client.setSteeringMode("all"));
await step("compact", () => client.compact("short"));
await step("abort", () => client.abort());
await step("clone", () => client.clone());
await step("fork", async () => client.fork((await client.getForkMessages())[1].entryId));
await step("fresh", () => client.newSession());
await step("end", () => client.getState());
await client.stop();
out.events = [...new Set(seen)].sort();
console.log(JSON.stringify(out));
process.exit(0);
