"""What connects trueup to other software. Each file adapts one package, which it alone imports."""
