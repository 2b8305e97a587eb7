// Prints every member of a package's types, one a line: what its entry point exports, what those types are made of, and
// the types of the package that they mention. Private members are none.
//
//     node members.mjs path/to/index.d.ts

import { createRequire } from "node:module";
import { resolve } from "node:path";

const ts = createRequire(import.meta.resolve("../ts-client/package.json"))("typescript");

const entry = resolve(process.argv[2]);
const options = { module: ts.ModuleKind.NodeNext, moduleResolution: ts.ModuleResolutionKind.NodeNext, skipLibCheck: true };
const program = ts.createProgram([entry], options);
const checker = program.getTypeChecker();

/** By name: a type is listed once. */
const found = new Map();
const members = new Set();

for (const symbol of checker.getExportsOfModule(checker.getSymbolAtLocation(program.getSourceFile(entry)))) {
  list(symbol.name, symbol);
}
console.log([...members].sort().join("\n"));

function list(name, given) {
  const symbol = given.flags & ts.SymbolFlags.Alias ? checker.getAliasedSymbol(given) : given;
  if (found.has(symbol)) return;
  found.set(symbol, name);
  members.add(name);
  for (const declaration of symbol.declarations ?? []) {
    // What a value is made of is its own business.
    if (isOurs(declaration) && !ts.isVariableDeclaration(declaration) && !ts.isFunctionDeclaration(declaration)) walk(name, declaration);
  }
}

/** Whether it is part of this SDK, not of the language, of node or of a library. */
function isOurs(node) {
  return /\/(@rivet-dev|@secure-exec)\//.test(node.getSourceFile().fileName);
}

/** Lists what a node names as members of `path`, and the types it mentions as types of their own. */
function walk(path, node) {
  ts.forEachChild(node, (child) => {
    if (ts.isTypeParameterDeclaration(child)) return;
    if (ts.isTypeReferenceNode(child) || ts.isExpressionWithTypeArguments(child)) mention(child.typeName ?? child.expression);
    if (ts.isTypeQueryNode(child)) return;
    const isMember = ts.isTypeElement(child) || ts.isClassElement(child);
    if (!isMember && !ts.isParameter(child)) return walk(path, child);
    if (ts.getCombinedModifierFlags(child) & ts.ModifierFlags.Private || ts.isConstructorDeclaration(child)) return;
    const name = child.name && !ts.isPrivateIdentifier(child.name) ? `${path}.${child.name.getText()}` : path;
    if (isMember && child.name) members.add(name);
    walk(name, child);
  });
}

function mention(name) {
  const symbol = checker.getSymbolAtLocation(name);
  const declared = symbol && symbol.flags & ts.SymbolFlags.Alias ? checker.getAliasedSymbol(symbol) : symbol;
  if (declared?.declarations?.some(isOurs) && !(declared.flags & ts.SymbolFlags.TypeParameter)) list(declared.name, declared);
}
