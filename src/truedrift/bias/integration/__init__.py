"""What the exact engines are made of: a pool as cells, its transforms, the partition rule, integrals, refinement."""
